// y = softmax(scale x) of every row, and its gradient: dx = scale y (dy - sum y dy). Attention without a mask, in three
// products.
#pragma once
#include "kernels/base/op.h"

namespace longstride::kernels {

struct SoftmaxArgs {
  Tensor x;  // (rows, columns) contiguous, exact type
  Tensor y;  // (rows, columns) contiguous, compute type
  double scale = 1;

  void check(Device device) const;
  Cost cost() const { return {WorkKind::attention_forward, bytes_of(x, y), 0}; }
};
LONGSTRIDE_OP(softmax, SoftmaxArgs)

struct SoftmaxBackwardArgs {
  Tensor y;   // as above
  Tensor dy;  // like x
  Tensor dx;  // like y, written
  double scale = 1;

  void check(Device device) const;
  Cost cost() const { return {WorkKind::attention_backward, bytes_of(y, dy, dx), 0}; }
};
LONGSTRIDE_OP(softmax_backward, SoftmaxBackwardArgs)

}  // namespace longstride::kernels
