#include <cstddef>

#include "kernels/attention/bounds_from_keys.h"
#include "kernels/attention/sm90/attention_sm90.h"
#include "kernels/attention/sm90/long_band/interval_task.cuh"
#include "kernels/attention/sm90/long_band/turns_launch.cuh"
#include "kernels/base/vector.cuh"

namespace longstride::kernels::cuda::sm90 {
namespace {

constexpr int threads = 128;

// A thread a query tile of a row of bounds.
__global__ void __launch_bounds__(threads)
    key_tiles_kernel(const QueryIntervals seen, const BoundsView bounds, std::int32_t rows, std::int32_t query_tiles,
                     std::int32_t key_rows, std::int32_t* first, std::int32_t* last) {
  const std::int32_t i = static_cast<std::int32_t>(blockIdx.x) * threads + static_cast<std::int32_t>(threadIdx.x);
  if (i >= rows * query_tiles) return;
  // Rows follow one another, whether heads have their own or not.
  const std::int64_t row = static_cast<std::int64_t>(i / query_tiles) * seen.n;
  const BoundsOfHead of_row =
      bounds.begin == nullptr ? BoundsOfHead{} : BoundsOfHead{bounds.begin + row, bounds.end + row};
  const KeyTileRange tiles(seen, of_row, i % query_tiles, query_tiles, key_rows);
  first[i] = tiles.first;
  last[i] = tiles.last;
}

}  // namespace

void attention_backward_intervals(const AttentionBackwardArgs& args, const IntervalPlan& plan, const float* delta,
                                  std::byte* scratch, const Launch& launch) {
  IntervalProblem problem = {};
  problem.intervals = plan.intervals;
  problem.key_tiles = plan.turns.order().key_tiles();
  auto* const first = reinterpret_cast<std::int32_t*>(scratch + plan.tiles_at());
  const std::int32_t tiles = plan.turns.ring.tiles, rows = plan.rows();
  std::int32_t* const last = first + rows * tiles;
  const BoundsView bounds(args.bounds);
  run("attention_key_tiles", key_tiles_kernel, {blocks_for(std::int64_t{rows} * tiles, threads), threads}, launch,
      plan.intervals, bounds, rows, tiles, plan.turns.order().key_rows(), first, last);
  problem.tiles.begin = first;
  problem.tiles.end = last;
  if (args.bounds.given()) {
    problem.tiles.head = bounds.head > 0 ? tiles : 0;
    problem.tiles.batch = args.bounds.begin.size(1) * tiles;
    problem.bounds = args.bounds.documents
                         ? bounds
                         : bounds_from_keys(args.bounds, args.k.size(1), scratch + plan.bounds_at(), launch);
  }
  with_turns_head(plan.turns.head, [&]<int Size>(std::integral_constant<int, Size>) {
    launch_turns<IntervalTask<key_strips(Size)>, Size>("attention_backward_intervals_sm90", args, plan.turns,
                                                       problem.key_tiles, delta, scratch, launch, problem);
  });
}

}  // namespace longstride::kernels::cuda::sm90
