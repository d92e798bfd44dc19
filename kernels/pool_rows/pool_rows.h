// Every `rate` consecutive rows become one: their mean, or their largest element by element.
//   y[g, r] = mean or max of x[g, r rate .. (r + 1) rate - 1]
#pragma once
#include "kernels/base/op.h"

namespace longstride::kernels {

struct PoolRowsArgs {
  Tensor x;  // (groups, rows rate, width), the last dimension dense
  Tensor y;  // (groups, rows, width) of the same type, likewise
  std::int64_t rate = 1;
  bool largest = false;

  void check(Device device) const;
  Cost cost() const { return {WorkKind::other, bytes_of(x, y), 0}; }
};
LONGSTRIDE_OP(pool_rows, PoolRowsArgs)

}  // namespace longstride::kernels
