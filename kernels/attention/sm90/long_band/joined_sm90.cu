#include <algorithm>
#include <cstddef>

#include "kernels/attention/sm90/attention_sm90.h"
#include "kernels/attention/sm90/long_band/joined_task.cuh"
#include "kernels/attention/sm90/long_band/turns_launch.cuh"

namespace longstride::kernels::cuda::sm90 {

void attention_backward_joined(const AttentionBackwardArgs& args, const JoinedPlan& plan, const float* delta,
                               std::byte* scratch, const Launch& launch) {
  JoinedProblem problem = {};
  problem.bounds = BoundsView(args.bounds);
  const std::int32_t n = plan.turns.band.n, head = plan.turns.head;
  const auto maps = [&](const Tensor& view) {
    return key_maps(view, plan.summary, n, band_rows, head, plan.in_pieces);
  };
  problem.summary_k = maps(args.k);
  problem.summary_v = maps(args.v);
  problem.in_pieces = plan.in_pieces;
  if (plan.in_pieces) {
    problem.pieces_k = piece_maps(args.k, n, head);
    problem.pieces_v = piece_maps(args.v, n, head);
  }
  problem.run = plan.summary.run;
  std::copy_n(plan.first, plan.turns.band.heads, problem.first);
  with_turns_head(head, [&]<int Size>(std::integral_constant<int, Size>) {
    launch_turns<JoinedTask<key_strips(Size)>, Size>("attention_backward_joined_sm90", args, plan.turns,
                                                     plan.order().tasks(), delta, scratch, launch, problem);
  });
}

}  // namespace longstride::kernels::cuda::sm90
