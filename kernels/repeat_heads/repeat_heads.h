// Heads that share keys, as a scan reads them: with r = heads / key heads, head h of y is head floor(h / r) of x. The
// backward pass adds the gradients of the heads that share one.
#pragma once
#include "kernels/base/op.h"

namespace longstride::kernels {

struct RepeatHeadsArgs {
  Tensor x;  // (batch, n, key heads, size), any strides but the last; f32 or f64 on the CPU; bf16, f16, f32 on a GPU
  Tensor y;  // (batch, n, heads, size), likewise, written; heads is a multiple of key heads

  void check(Device device) const;
  Cost cost() const { return {WorkKind::other, bytes_of(x, y), 0}; }
};
LONGSTRIDE_OP(repeat_heads, RepeatHeadsArgs)

struct RepeatHeadsBackwardArgs {
  Tensor dy;  // like y
  Tensor dx;  // like x, written

  void check(Device device) const;
  Cost cost() const { return {WorkKind::other, bytes_of(dy, dx), static_cast<double>(dy.count())}; }
};
LONGSTRIDE_OP(repeat_heads_backward, RepeatHeadsBackwardArgs)

}  // namespace longstride::kernels
