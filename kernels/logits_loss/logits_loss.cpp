#include "kernels/logits_loss/logits_loss.h"

#include "kernels/base/tensor_checks.h"

namespace longstride::kernels {

void LogitsLossArgs::check(Device device) const {
  LONGSTRIDE_CHECK(hidden.rank() == 2 && weight.rank() == 2, "hidden is {}, weight {}", hidden.shape().text(),
                   weight.shape().text());
  check_vector(losses, hidden.size(0), exact_type(device, hidden.dtype()), "losses");
  product().check(device);
  loss().check(device);
}

namespace {

// Logits of the gradient's type are computed in its place.
bool in_place(const LogitsLossArgs& args) {
  return args.gradient.given() && args.gradient.dtype() == args.losses.dtype();
}
Tensor logits_of(const LogitsLossArgs& args) {
  if (in_place(args)) return args.gradient;
  if (args.scratch.given()) return args.scratch;
  return {nullptr, args.losses.dtype(), {args.hidden.size(0), args.weight.size(0)}};  // so far only checked
}

}  // namespace

Tensor LogitsLossArgs::scratch_on(Device) const { return in_place(*this) ? Tensor{} : logits_of(*this); }

GemmArgs LogitsLossArgs::product() const {
  return {.a = hidden,
          .b = weight.transposed(),
          .c = logits_of(*this),
          .bias = bias,
          .epilogue = bias.given() ? Epilogue::bias : Epilogue::none};
}

SoftmaxCrossEntropyArgs LogitsLossArgs::loss() const {
  const Tensor logits = logits_of(*this);
  return {.logits = logits,
          .targets = targets,
          .losses = losses,
          .gradient = gradient,
          .scale = scale,
          .loss_scale = loss_scale,
          .weights = weights,
          .right = right};
}

namespace cpu {

void logits_loss(const LogitsLossArgs& args, const Launch& launch) {
  gemm(args.product(), launch);
  softmax_cross_entropy(args.loss(), launch);
}

}  // namespace cpu
}  // namespace longstride::kernels
