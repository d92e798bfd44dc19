#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "kernels/attention/sm90/band/band_backward.h"
#include "kernels/attention/sm90/band/band_backward_launch.cuh"
#include "kernels/attention/sm90/band/band_backward_long_kernel.cuh"
#include "kernels/base/gpu_kind.h"

namespace longstride::kernels::cuda::sm90 {

// A smaller head is one of 64: TMA fills the columns beyond with zeros.
void attention_backward_long_band(const AttentionBackwardArgs& args, const LongBandPlan& plan, const float* delta,
                                  float* key_sums, const Launch& launch) {
  LongBandProblem problem = {};
  fill_problem(args, plan.band, long_band_head, long_band_head, problem);
  problem.run = plan.run;
  problem.runs = plan.runs;
  problem.slots = plan.slots;
  problem.tasks = static_cast<std::uint32_t>(plan.tasks(args.q.size(0)));
  problem.delta = delta;
  problem.key_sums = reinterpret_cast<float4*>(key_sums);
  const unsigned blocks = std::min(
      {problem.tasks, static_cast<std::uint32_t>(long_band_blocks), static_cast<std::uint32_t>(multiprocessors())});
  with_gpu_type(args.q.dtype(), [&](auto zero) {
    using T = decltype(zero);
    if constexpr (!std::is_same_v<T, float>) {
      using Band = BandBackwardLong<T>;
      allow_shared(backward_band_long<T>, Band::shared_bytes);
      run("attention_backward_long_band_sm90", backward_band_long<T>, {blocks, Band::block_threads, Band::shared_bytes},
          launch, problem);
    }
  });
}

}  // namespace longstride::kernels::cuda::sm90
