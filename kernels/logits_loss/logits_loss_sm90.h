// logits_loss for 256 classes and a width of at most 256 on Hopper: the logits stay in registers.
#pragma once
#include "kernels/logits_loss/logits_loss.h"

namespace longstride::kernels::cuda::sm90 {

// True for 16-bit matrices that TMA can copy, without a bias, and rows enough for every multiprocessor.
bool supports_logits_loss(const LogitsLossArgs& args);
void logits_loss(const LogitsLossArgs& args, const Launch& launch);

}  // namespace longstride::kernels::cuda::sm90
