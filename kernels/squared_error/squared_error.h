// How far x is from a constant target, and the gradient:
//   losses[g, r] = scale sum_c (x - target)^2,     dx = 2 scale loss_scale (x - target)
// for every row r of group g; both 0 in groups whose first key exceeds `last`.
#pragma once
#include "kernels/base/op.h"

namespace longstride::kernels {

struct SquaredErrorArgs {
  Tensor x, target;  // (groups, rows, width) contiguous, exact type
  Tensor losses;     // (groups, rows) likewise, written
  Tensor dx;         // like x, compute type, written
  double scale = 1;
  const float* loss_scale = nullptr;  // device memory; null: 1
  Tensor first_key = {};              // (groups) i32; absent: no group is hidden
  std::int64_t last = 0;

  void check(Device device) const;
  Cost cost() const { return {WorkKind::loss, bytes_of(x, target, losses, dx), 0}; }
};
LONGSTRIDE_OP(squared_error, SquaredErrorArgs)

}  // namespace longstride::kernels
