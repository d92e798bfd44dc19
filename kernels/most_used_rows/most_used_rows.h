// The rows that received the most attention, in their order: y has the rows of x whose sum of `usage` over the heads is
// among the largest, of equal ones the earlier. Sums are added in the order of the heads, in f32, on the CPU in usage's
// type.
#pragma once
#include "kernels/base/op.h"

namespace longstride::kernels {

struct MostUsedRowsArgs {
  Tensor usage;  // (groups, rows, heads) any strides, of a type that the device computes in
  Tensor x;      // (groups, rows, width) likewise, the last dimension dense; on a GPU at most 16,384 rows
  Tensor y;      // (groups, kept, width) like x, kept <= rows

  void check(Device device) const;
  Cost cost() const { return {WorkKind::other, bytes_of(usage, x, y), 0}; }
};
LONGSTRIDE_OP(most_used_rows, MostUsedRowsArgs)

}  // namespace longstride::kernels
