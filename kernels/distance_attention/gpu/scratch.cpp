#include "kernels/distance_attention/gpu/scratch.h"

#include <algorithm>

#include "kernels/distance_attention/fast_path.h"
#include "kernels/distance_attention/gpu/call.h"

namespace longstride::kernels::cuda {

namespace distance {
namespace {

// T's gradient is computed by blocks of some distances and a chunk of the queries. Chunks are as many as make enough
// blocks to fill a GPU; where spans are learned and most distances may have no pairs, as many as make enough of the
// nearest few, within this much memory. Independent of the GPU, so that memory can be planned without one.
constexpr std::int64_t table_blocks = 1056, most_chunks_with_span = 16, most_bytes_with_span = std::int64_t{1} << 28;

std::int64_t chunks_of(const DistanceScores& s, std::int64_t bands, std::int64_t bytes_of_chunk) {
  const std::int64_t blocks = bands * s.q.size(2), filling = (table_blocks + blocks - 1) / blocks;
  if (!s.span.given()) return filling;
  return std::max(filling, std::min(most_chunks_with_span, most_bytes_with_span / bytes_of_chunk));
}

}  // namespace

void ScratchPieces::take_queries(const DistanceScores& s, cpu::Carver& carver) {
  const auto bytes = static_cast<std::int64_t>(s.q.bytes());
  if (s.content_bias.given()) content = carver.take<std::byte>(bytes);
  if (s.position_bias.given()) position = carver.take<std::byte>(bytes);
  const auto n_q = static_cast<std::int32_t>(s.q.size(1));
  const std::int32_t rows = s.q.dtype() == Dtype::f32 ? portable::plain_rows : tile_rows;
  query_tiles = query_tiles_of(n_q, 1, rows);
  for (const std::int32_t step : s.dilation) query_tiles = std::max(query_tiles, query_tiles_of(n_q, step, rows));
}

void ScratchPieces::take_table_sums(const DistanceScores& s, cpu::Carver& carver) {
  const std::int64_t chunk = s.q.size(2) * bands * band_rows * s.q.size(3);
  chunks = static_cast<std::int32_t>(std::clamp<std::int64_t>(
      chunks_of(s, bands, chunk * static_cast<std::int64_t>(sizeof(float))), 1, s.q.size(0) * query_tiles));
  table_sums = carver.take<float>(chunks * chunk);
}

void ScratchPieces::take_saved(const DistanceAttentionBackwardArgs& args, cpu::Carver& carver) {
  constexpr std::int64_t tile_bytes = tile_rows * tile_rows * 2;
  const std::int64_t units = args.scores.q.size(0) * args.scores.q.size(2),
                     of_probabilities = query_tiles * bands * tile_bytes,
                     of_gradients = args.dtable.given() ? query_tiles * (bands + 1) * tile_bytes : 0;
  const std::int64_t most = std::clamp<std::int64_t>(args.saved_bytes / (of_probabilities + of_gradients), 1, units),
                     parts = (units + most - 1) / most;
  saved_units = static_cast<std::int32_t>((units + parts - 1) / parts);
  probabilities = carver.take<std::byte>(saved_units * of_probabilities);
  if (of_gradients > 0) score_gradients = carver.take<std::byte>(saved_units * of_gradients);
}

ScratchPieces::ScratchPieces(const DistanceAttentionArgs& args, void* memory) {
  cpu::Carver carver(memory);
  take_queries(args.scores, carver);
  total = carver.used();
}

ScratchPieces::ScratchPieces(const DistanceAttentionBackwardArgs& args, void* memory) {
  cpu::Carver carver(memory);
  const DistanceScores& s = args.scores;
  take_queries(s, carver);
  const std::int64_t units = s.q.size(0) * s.q.size(2), size = s.q.size(3);
  delta = carver.take<float>(units * s.q.size(1));
  bias_sums = carver.take<float>(units * query_tiles * (2 * size + 1));
  if (s.table.given()) {
    const std::int64_t n_k = s.k.size(1);
    bands = bands_of(static_cast<std::int32_t>(s.window > 0 ? std::min(s.window, n_k) : n_k));
    if (args.dtable.given()) take_table_sums(s, carver);
    if (hopper_takes(s, args.v.size(3))) take_saved(args, carver);
  }
  total = carver.used();
}

}  // namespace distance

std::size_t distance_attention_scratch_bytes(const DistanceAttentionArgs& args) {
  return distance::ScratchPieces(args, nullptr).total;
}
std::size_t distance_attention_scratch_bytes(const DistanceAttentionBackwardArgs& args) {
  return distance::ScratchPieces(args, nullptr).total;
}

}  // namespace longstride::kernels::cuda
