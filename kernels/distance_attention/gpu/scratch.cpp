#include "kernels/distance_attention/gpu/scratch.h"

#include <algorithm>

#include "kernels/distance_attention/gpu/call.h"

namespace longstride::kernels::cuda {

namespace distance {

// Enough blocks for T's gradient to fill a GPU; independent of the GPU, so that memory can be planned without one.
constexpr std::int64_t table_blocks = 1056;

void ScratchPieces::take_queries(const DistanceScores& s, cpu::Carver& carver) {
  const auto bytes = static_cast<std::int64_t>(s.q.bytes());
  if (s.content_bias.given()) content = carver.take<std::byte>(bytes);
  if (s.position_bias.given()) position = carver.take<std::byte>(bytes);
  const auto n_q = static_cast<std::int32_t>(s.q.size(1));
  query_tiles = query_tiles_of(n_q, 1);
  for (const std::int32_t step : s.dilation) query_tiles = std::max(query_tiles, query_tiles_of(n_q, step));
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
  const std::int64_t units = s.q.size(0) * s.q.size(2), size = s.q.size(3), n_k = s.k.size(1);
  delta = carver.take<float>(units * s.q.size(1));
  bias_sums = carver.take<float>(units * query_tiles * (2 * size + 1));
  if (args.dtable.given()) {
    bands = bands_of(static_cast<std::int32_t>(s.window > 0 ? std::min(s.window, n_k) : n_k));
    const std::int64_t wanted = (table_blocks + bands * s.q.size(2) - 1) / (bands * s.q.size(2));
    chunks = static_cast<std::int32_t>(std::clamp<std::int64_t>(wanted, 1, s.q.size(0) * query_tiles));
    table_sums = carver.take<float>(chunks * s.q.size(2) * bands * band_rows * size);
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
