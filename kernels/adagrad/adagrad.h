// Adagrad (Duchi et al. 2011), as torch.optim.Adagrad has it, with decoupled weight decay and, optionally, the learning
// rate of a tensor lowered when its gradient is large (Sukhbaatar et al. 2019, Adaptive Attention Span). As in adam.h,
// the scalars are in device memory, and a step whose gradient is not finite changes nothing.
#pragma once
#include "kernels/adam/adam.h"

namespace longstride::kernels {

// With g = clip_coefficient * gradient, and r = min(1, tensor_clip / |g|) over the whole tensor if tensor_clip > 0 and
// otherwise 1:
//   sum += g^2,  w -= lr (r g / (sqrt(sum) + epsilon) + decay w),  low_precision = w, rounded
// r multiplies the learning rate, so `sum` grows by the whole gradient, as in the authors' code.
struct AdagradArgs {
  Tensor weights;  // (count); all contiguous and of one type, f32 on a GPU
  Tensor gradient;
  Tensor sum;
  Tensor low_precision = {};   // GPU: as in AdamArgs; optional, and absent on the CPU
  Tensor tensor_squares = {};  // (1) f64: the sum of squares of the tensor's gradient; absent if tensor_clip is 0
  double tensor_clip = 0;
  double epsilon = 1e-10;
  double weight_decay = 0;  // 0 for a tensor that does not decay
  const OptimizerScalars* scalars = nullptr;

  void check(Device device) const;
  Cost cost() const { return {WorkKind::optimizer, 2 * bytes_of(weights, sum) + bytes_of(gradient, low_precision), 0}; }
};

// The factors of one step of one tensor, on either device.
struct AdagradFactors {
  double scale, rate, shrink;
};

LONGSTRIDE_HOST_DEVICE inline AdagradFactors adagrad_factors(const OptimizerScalars& scalars,
                                                             const double* tensor_squares, double tensor_clip,
                                                             double weight_decay) {
  const double scale = scalars.clip_coefficient, lr = scalars.learning_rate;
  const double norm = tensor_squares != nullptr ? scale * std::sqrt(*tensor_squares) : 0;
  return {scale, norm > tensor_clip ? lr * tensor_clip / norm : lr, lr * weight_decay};
}

LONGSTRIDE_OP(adagrad, AdagradArgs)

}  // namespace longstride::kernels
