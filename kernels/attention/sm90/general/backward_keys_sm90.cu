#include "kernels/attention/sm90/general/backward_launch.cuh"

namespace longstride::kernels::cuda::sm90 {

void launch_backward_keys(const AttentionBackwardArgs& args, BackwardProblemInPieces& problem,
                          const LabelsOfLaunch* labels, const Launch& launch) {
  launch_backward_side<Side::keys>(args, problem, labels, launch);
}

}  // namespace longstride::kernels::cuda::sm90
