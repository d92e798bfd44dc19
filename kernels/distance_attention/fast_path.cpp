#include "kernels/distance_attention/fast_path.h"

namespace longstride::kernels {
namespace {

constexpr std::int64_t smallest = 40, largest = 64, pack = 8;

bool is_fast_size(std::int64_t size) { return is_hopper_size(size) && size % pack == 0; }

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
  const std::int64_t n_q = scores.q.size(1), n_k = scores.k.size(1);
  for (std::int64_t h = 0; h < scores.q.size(2); ++h) {
    const std::int64_t step = scores.dilation.empty() ? 1 : scores.dilation[static_cast<std::size_t>(h)];
    if (n_q % step != 0 || n_k % step != 0) return {DistanceSlowness::dilation, step};
    if (scores.table.given() && !has_row_for_every_distance(scores.table.size(0), n_k, scores.window, step))
      return {DistanceSlowness::table, scores.table.size(0)};
  }
  return {};
}

}  // namespace longstride::kernels
