#include "kernels/distance_attention/fast_path.h"

#include <algorithm>

namespace longstride::kernels {
namespace {

constexpr std::int64_t smallest = 40, largest = 64, pack = 8;

bool is_fast_size(std::int64_t size) { return size >= smallest && size <= largest && size % pack == 0; }

// True if every distance of a pair has a row of its own in the table.
bool has_row_for_every_distance(const DistanceScores& s, std::int64_t step) {
  const std::int64_t entries = s.k.size(1) / step, most = s.window > 0 ? std::min(s.window, entries) : entries;
  return (most - 1) * step < s.table.size(0);
}

DistanceFastPath size_of_head(std::int64_t size) {
  const std::int64_t below = std::min(size / pack * pack, largest),
                     above = std::max(size / pack * pack + pack, smallest);
  return {DistanceSlowness::head_size, size, below >= smallest ? below : 0, above <= largest ? above : 0};
}

}  // namespace

DistanceFastPath fast_path_of(const DistanceScores& scores, std::int64_t value_size) {
  for (const std::int64_t size : {scores.q.size(3), value_size})
    if (!is_fast_size(size)) return size_of_head(size);
  if (scores.dropout.p > 0) return {DistanceSlowness::dropout};
  if (scores.bounds.given()) return {DistanceSlowness::bounds};
  const std::int64_t n_q = scores.q.size(1), n_k = scores.k.size(1);
  for (std::int64_t h = 0; h < scores.q.size(2); ++h) {
    const std::int64_t dilation = scores.dilation.empty() ? 1 : scores.dilation[static_cast<std::size_t>(h)],
                       step = std::min(dilation, n_k);
    if (n_q % step != 0 || n_k % step != 0) return {DistanceSlowness::dilation, dilation};
    if (scores.table.given() && !has_row_for_every_distance(scores, step))
      return {DistanceSlowness::table, scores.table.size(0)};
  }
  return {};
}

bool hopper_takes(const DistanceScores& scores, std::int64_t value_size) {
  return scores.path != AttentionPath::portable && bytes_of(scores.q.dtype()) == 2 &&
         fast_path_of(scores, value_size).slowness == DistanceSlowness::none;
}

}  // namespace longstride::kernels
