// to = from for arrays of rows that are not next to each other: (groups, rows, width), the last dimension dense.
#pragma once
#include "kernels/base/op.h"

namespace longstride::kernels {

struct CopyRowsArgs {
  Tensor from;  // any type
  Tensor to;    // same shape and type

  void check(Device device) const;
  Cost cost() const { return {WorkKind::other, bytes_of(from, to), 0}; }
};

LONGSTRIDE_OP(copy_rows, CopyRowsArgs)

}  // namespace longstride::kernels
