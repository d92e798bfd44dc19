// Zeroes the rows of x that are marked: what a row remembers of a stream, when it begins another one.
#pragma once
#include "kernels/base/op.h"

namespace longstride::kernels {

struct ClearRowsArgs {
  Tensor x;       // (rows, width) contiguous, of any type
  Tensor marked;  // (rows) u8: not 0 where the row becomes 0

  void check(Device device) const;
  Cost cost() const { return {WorkKind::other, bytes_of(marked), 0}; }
};

LONGSTRIDE_OP(clear_rows, ClearRowsArgs)

}  // namespace longstride::kernels
