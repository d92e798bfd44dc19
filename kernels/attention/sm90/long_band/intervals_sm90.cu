#include <cstddef>

#include "kernels/attention/bounds_from_keys.h"
#include "kernels/attention/sm90/attention_sm90.h"
#include "kernels/attention/sm90/long_band/interval_task.cuh"
#include "kernels/attention/sm90/long_band/turns_launch.cuh"
#include "kernels/base/vector.cuh"

namespace longstride::kernels::cuda::sm90 {
namespace {

constexpr int threads = 512;

// A block a row of bounds. key_tiles: first and last of every query tile; query_tiles: begin and end of every key tile.
__global__ void __launch_bounds__(threads)
    tiles_kernel(const QueryIntervals seen, const BoundsView bounds, std::int32_t key_rows, IntervalOrder order,
                 std::int32_t* const key_tiles, std::int32_t* const query_tiles) {
  const auto row = static_cast<std::int64_t>(blockIdx.x), rows = static_cast<std::int64_t>(gridDim.x);
  const auto thread = static_cast<std::int32_t>(threadIdx.x);
  std::int32_t *const first = key_tiles + row * order.query_tiles, *const last = first + rows * order.query_tiles,
                      *const begin = query_tiles + row * order.key_tiles, *const end = begin + rows * order.key_tiles;
  // Rows of bounds follow one another, whether heads have their own or not.
  BoundsOfHead of_row;
  if (bounds.begin != nullptr) of_row = {bounds.begin + row * seen.n, bounds.end + row * seen.n};
  for (std::int32_t i = thread; i < order.query_tiles; i += threads) {
    const KeyTileRange keys(seen, of_row, i, order.query_tiles, key_rows);
    first[i] = keys.first;
    last[i] = keys.last;
  }
  __syncthreads();
  order.first = first;
  order.last = last;
  for (std::int32_t i = thread; i < order.key_tiles; i += threads) {
    begin[i] = order.begin_of(i);
    end[i] = order.end_of(i);
  }
}

}  // namespace

void attention_backward_intervals(const AttentionBackwardArgs& args, const IntervalPlan& plan, const float* delta,
                                  std::byte* scratch, const Launch& launch) {
  IntervalProblem problem = {};
  problem.intervals = plan.intervals;
  problem.rotation = plan.rotation;
  const LongBandOrder band = plan.turns.order();
  const std::int32_t tiles = plan.turns.ring.tiles, keys = band.key_tiles();
  auto* const key_tiles = reinterpret_cast<std::int32_t*>(scratch + plan.tiles_at());
  std::int32_t* const query_tiles = key_tiles + 2 * std::int64_t{plan.rows()} * tiles;
  const BoundsView bounds(args.bounds);
  run("attention_tiles", tiles_kernel, {static_cast<unsigned>(plan.rows()), threads}, launch, plan.intervals, bounds,
      band.key_rows(), IntervalOrder{nullptr, nullptr, tiles, keys}, key_tiles, query_tiles);
  problem.first_key = key_tiles;
  problem.begin = query_tiles;
  problem.end = query_tiles + std::int64_t{plan.rows()} * keys;
  problem.key_tiles = keys;
  if (args.bounds.given()) {
    problem.rows_of_head = bounds.head > 0 ? 1 : 0;
    problem.rows_of_sequence = static_cast<std::int32_t>(args.bounds.begin.size(1));
    problem.bounds = args.bounds.documents
                         ? bounds
                         : bounds_from_keys(args.bounds, args.k.size(1), scratch + plan.bounds_at(), launch);
  }
  with_turns_head(plan.turns.head, [&]<int Size>(std::integral_constant<int, Size>) {
    launch_turns<IntervalTask<key_strips(Size)>, Size>("attention_backward_intervals_sm90", args, plan.turns, keys,
                                                       delta, scratch, launch, problem);
  });
}

}  // namespace longstride::kernels::cuda::sm90
