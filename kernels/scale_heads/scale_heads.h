// Rows of heads times one number each, y = add + s x: the step of SSD, of a position and head, by which its value
// counts, and its skip, of a head, by which values pass the state by (Dao and Gu 2024). The backward pass: dx = s dy or
// dx += s dy, and the gradient of every row's s, dy . x.
#pragma once
#include "kernels/base/op.h"

namespace longstride::kernels {

struct ScaleHeadsArgs {
  Tensor x;         // (batch, n, heads, size), any strides but the last; f32 or f64 on the CPU; bf16, f16, f32 on a GPU
  Tensor scale;     // (batch, n, heads) or (heads), contiguous, exact
  Tensor y;         // like x, written; may be x
  Tensor add = {};  // like x; may be y

  void check(Device device) const;
  Cost cost() const { return {WorkKind::other, bytes_of(x, scale, y, add), 2 * static_cast<double>(x.count())}; }
};
LONGSTRIDE_OP(scale_heads, ScaleHeadsArgs)

struct ScaleHeadsBackwardArgs {
  Tensor dy, x;  // like x
  Tensor scale;
  Tensor dx;          // like x, written; may be dy
  Tensor dscale;      // (batch, n, heads), written, also where all positions share one scale
  bool adds = false;  // to dx, which is not dy

  void check(Device device) const;
  Cost cost() const { return {WorkKind::other, bytes_of(dy, x, scale, dx), 3 * static_cast<double>(x.count())}; }
};
LONGSTRIDE_OP(scale_heads_backward, ScaleHeadsBackwardArgs)

}  // namespace longstride::kernels
