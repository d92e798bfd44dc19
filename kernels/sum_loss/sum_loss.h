// A loss of parameters alone: loss = factor * sum of x, and d loss / dx = factor.
#pragma once
#include "kernels/base/op.h"

namespace longstride::kernels {

struct SumLossArgs {
  Tensor x;         // (count) of the exact type
  Tensor gradient;  // the same; accumulates the gradient of loss_scale * loss
  Tensor loss;      // (1) f64; accumulates the loss, added in f64 in a fixed order
  double factor = 1;
  const float* loss_scale = nullptr;  // device memory; null: 1

  void check(Device device) const;
  Cost cost() const { return {WorkKind::loss, bytes_of(x, gradient, gradient), 0}; }
};
LONGSTRIDE_OP(sum_loss, SumLossArgs)

}  // namespace longstride::kernels
