#include <cstdint>
#include <type_traits>

#include "kernels/attention/sm90/band/band_backward.h"
#include "kernels/attention/sm90/band/band_backward_large_kernel.cuh"
#include "kernels/attention/sm90/band/band_backward_launch.cuh"

namespace longstride::kernels::cuda::sm90 {
namespace {

template <class T, int KeySize, int ValueSize, int Blocks>
void launch_band(const AttentionBackwardArgs& args, const BandPlan& band, const Launch& launch) {
  using B = BandBackwardLarge<T, KeySize, ValueSize, Blocks>;
  BandBackwardProblem problem = {};
  fill_problem(args, band, KeySize, ValueSize, problem);
  const std::int32_t tiles = tiles_in(band.set.length, band_rows);
  const int blocks = choose_room<B>(band, tiles, problem);
  const std::int64_t batch = args.q.size(0);
  problem.run = choose_run(band, batch, std::int64_t{blocks} * multiprocessors()).run;
  auto* const kernel = backward_band_large<T, KeySize, ValueSize, Blocks>;
  const std::size_t bytes = B::shared_bytes(problem.slots, problem.reach, problem.key_stages, problem.ds_stages);
  allow_shared(kernel, bytes);
  const std::int64_t of_sequence = std::int64_t{band.heads} * band.segments * tiles_in(tiles, problem.run);
  run("attention_backward_band_sm90", kernel,
      {{static_cast<unsigned>(of_sequence), static_cast<unsigned>(batch)}, B::threads, bytes}, launch, problem);
}

}  // namespace

// A size between those of two kernels uses the larger: TMA fills the columns beyond with zeros.
void attention_backward_band_large(const AttentionBackwardArgs& args, const BandPlan& band, const Launch& launch) {
  with_gpu_type(args.q.dtype(), [&](auto zero) {
    using T = decltype(zero);
    if constexpr (!std::is_same_v<T, float>)
      args.v.size(3) <= 64 ? launch_band<T, 64, 64, 2>(args, band, launch)
                           : launch_band<T, 64, 128, 2>(args, band, launch);
  });
}

}  // namespace longstride::kernels::cuda::sm90
