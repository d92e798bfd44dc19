#include <cstdint>
#include <type_traits>

#include "kernels/attention/sm90/attention_sm90.h"
#include "kernels/attention/sm90/band/band_backward_large_kernel.cuh"
#include "kernels/attention/sm90/band/band_backward_launch.cuh"
#include "kernels/attention/sm90/band/band_backward_served_kernel.cuh"
#include "kernels/attention/sm90/band/band_backward_wide_kernel.cuh"
#include "kernels/base/gpu_kind.h"

namespace longstride::kernels::cuda::sm90 {
namespace {

// Divides a multiprocessor for a block of the wide kernel; false if the band is too narrow or too wide for it.
template <class B>
bool choose_wide_room(const BandPlan& band, BandBackwardProblem& problem) {
  if (band.reach < B::least_reach) return false;
  for (problem.slots = band.reach + 1; problem.slots >= band.reach - 1; --problem.slots)
    if (B::shared_bytes(problem.slots, band.reach) <= shared_of_block) return true;
  return false;
}

template <class Problem>
void launch_blocks(void (*kernel)(Problem), const Problem& problem, std::int64_t batch, std::int32_t tiles, int threads,
                   std::size_t bytes, const Launch& launch) {
  allow_shared(kernel, bytes);
  const std::int64_t of_sequence = std::int64_t{problem.heads} * problem.classes * tiles_in(tiles, problem.run);
  run("attention_backward_band_sm90", kernel,
      {{static_cast<unsigned>(of_sequence), static_cast<unsigned>(batch)}, threads, bytes}, launch, problem);
}

template <class T>
void launch_served(const AttentionBackwardArgs& args, const BandPlan& band, const BandBackwardProblem& problem,
                   const Launch& launch) {
  using Block = BandBackwardServedBlock<T>;
  const auto rows_of_warps = [&](const Tensor& view) { return row_maps(view, band.set, band.n, 16, served_head); };
  BandBackwardServedProblem served = {problem, rows_of_warps(args.dk), rows_of_warps(args.dv)};
  const std::int64_t batch = args.q.size(0);
  served.run = choose_run(band, batch, multiprocessors()).run;
  launch_blocks(backward_band_served<T>, served, batch, tiles_in(band.set.length, band_rows), Block::block_threads,
                Block::shared_bytes, launch);
}

// Three key tiles of up to 64 have a kernel of their own. Of other bands two blocks of one warpgroup fit a
// multiprocessor if they are narrow; otherwise one block of two is better.
template <class T, int KeySize, int ValueSize>
void launch_band(const AttentionBackwardArgs& args, const BandPlan& band, const Launch& launch) {
  using Narrow = BandBackwardLarge<T, KeySize, ValueSize, 2>;
  using Wide = BandBackwardWide<T, KeySize, ValueSize>;
  BandBackwardProblem problem = {};
  fill_problem(args, band, KeySize, ValueSize, problem);
  if constexpr (ValueSize <= served_head)
    if (band.reach == served_reach) return launch_served<T>(args, band, problem, launch);
  const std::int32_t tiles = tiles_in(band.set.length, band_rows);
  const std::int64_t batch = args.q.size(0);
  const int blocks = choose_room<Narrow>(band, tiles, problem);
  problem.run = choose_run(band, batch, std::int64_t{blocks} * multiprocessors()).run;
  BandBackwardProblem wide = problem;
  if (blocks == 1 && choose_wide_room<Wide>(band, wide)) {
    launch_blocks(backward_band_wide<T, KeySize, ValueSize>, wide, batch, tiles, Wide::block_threads,
                  Wide::shared_bytes(wide.slots, wide.reach), launch);
    return;
  }
  launch_blocks(backward_band_large<T, KeySize, ValueSize, 2>, problem, batch, tiles, Narrow::threads,
                Narrow::shared_bytes(problem.slots, problem.reach, problem.key_stages, problem.ds_stages), launch);
}

}  // namespace

// A size between those of two kernels uses the larger: TMA fills the columns beyond with zeros.
void attention_backward_band_large(const AttentionBackwardArgs& args, const BandPlan& band, const Launch& launch) {
  with_gpu_type(args.q.dtype(), [&](auto zero) {
    using T = decltype(zero);
    if constexpr (!std::is_same_v<T, float>)
      args.v.size(3) <= 64 ? launch_band<T, 64, 64>(args, band, launch) : launch_band<T, 64, 128>(args, band, launch);
  });
}

}  // namespace longstride::kernels::cuda::sm90
