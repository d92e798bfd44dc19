#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "kernels/attention/sm90/attention_sm90.h"
#include "kernels/attention/sm90/band/band_backward_launch.cuh"
#include "kernels/attention/sm90/long_band/classes_kernel.cuh"
#include "kernels/base/gpu_kind.h"

namespace longstride::kernels::cuda::sm90 {

void attention_backward_classes(const AttentionBackwardArgs& args, const LongBandPlan& plan, const float* delta,
                                const Launch& launch) {
  LongBandProblem problem = {};
  fill_problem(args, plan.band, long_band_head, long_band_head, problem);
  problem.tasks = static_cast<std::uint32_t>(plan.tasks());
  problem.delta = delta;
  const unsigned blocks = std::min(problem.tasks, static_cast<std::uint32_t>(multiprocessors()));
  with_gpu_type(args.q.dtype(), [&](auto zero) {
    using T = decltype(zero);
    if constexpr (!std::is_same_v<T, float>) {
      using Band = BandBackwardClasses<T>;
      allow_shared(backward_classes<T>, Band::shared_bytes);
      run("attention_backward_classes_sm90", backward_classes<T>, {blocks, Band::block_threads, Band::shared_bytes},
          launch, problem);
    }
  });
}

}  // namespace longstride::kernels::cuda::sm90
