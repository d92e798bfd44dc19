// The runs of equal numbers along rows: position i of a row is in [begin_i, end_i). Documents that do not mix are
// groups, and these are their bounds (kernels/attention/pattern/row_bounds.h).
#pragma once
#include "kernels/base/op.h"

namespace longstride::kernels {

struct GroupBoundsArgs {
  Tensor groups;      // (rows, n) i32, contiguous, never decreasing along a row; the CPU refuses others (InternalError)
  Tensor begin, end;  // (rows, 1, n) i32, contiguous, written

  void check(Device device) const;
  Cost cost() const { return {WorkKind::other, bytes_of(groups, begin, end), 0}; }
};
LONGSTRIDE_OP(group_bounds, GroupBoundsArgs)

}  // namespace longstride::kernels
