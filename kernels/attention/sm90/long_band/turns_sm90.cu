#include <cstddef>

#include "kernels/attention/sm90/attention_sm90.h"
#include "kernels/attention/sm90/long_band/turn_task.cuh"
#include "kernels/attention/sm90/long_band/turns_launch.cuh"

namespace longstride::kernels::cuda::sm90 {

void attention_backward_turns(const AttentionBackwardArgs& args, const LongBandPlan& plan, const float* delta,
                              std::byte* scratch, const Launch& launch) {
  TurnProblem problem = {};
  problem.bounds = BoundsView(args.bounds);
  const auto launch_for = [&]<int Size>(std::integral_constant<int, Size>) {
    launch_turns<TurnTask<key_strips(Size)>, Size>("attention_backward_turns_sm90", args, plan, plan.order().tasks(),
                                                   delta, scratch, launch, problem);
  };
  with_turns_head(plan.head, launch_for);
}

}  // namespace longstride::kernels::cuda::sm90
