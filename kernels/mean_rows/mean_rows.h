// y[g] = mean of x[g, 0 .. end[g] - 1], and its gradient: dx[g, t] = dy[g] / end[g] for t < end[g], and 0 elsewhere.
// Sums have a fixed order.
#pragma once
#include "kernels/base/op.h"

namespace longstride::kernels {

struct MeanRowsArgs {
  Tensor x;         // (groups, rows, width), the last dimension dense
  Tensor end = {};  // (groups, 1) i32, any stride, from 1 to rows; absent: all rows
  Tensor y;         // (groups, 1, width) of x's type, likewise

  void check(Device device) const;
  Cost cost() const { return {WorkKind::other, bytes_of(x, y), 0}; }
};
LONGSTRIDE_OP(mean_rows, MeanRowsArgs)

struct MeanRowsBackwardArgs {
  Tensor dy;        // like y
  Tensor end = {};  // the same
  Tensor dx;        // like x, written

  void check(Device device) const;
  Cost cost() const { return {WorkKind::other, bytes_of(dy, dx), 0}; }
};
LONGSTRIDE_OP(mean_rows_backward, MeanRowsBackwardArgs)

}  // namespace longstride::kernels
