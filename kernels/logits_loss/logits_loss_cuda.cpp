#include "kernels/logits_loss/logits_loss.h"
#include "kernels/logits_loss/logits_loss_sm90.h"

namespace longstride::kernels::cuda {

void logits_loss(const LogitsLossArgs& args, const Launch& launch) {
  if (sm90::supports_logits_loss(args)) return sm90::logits_loss(args, launch);
  gemm(args.product(), launch);
  softmax_cross_entropy(args.loss(), launch);
}

}  // namespace longstride::kernels::cuda
