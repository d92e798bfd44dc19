// Rows that are added to a ring of rows, which keeps the last ones: of every group g
//   ring[g, (first + r) mod capacity] = x[g, r]
#pragma once
#include "kernels/base/op.h"

namespace longstride::kernels {

struct AppendRowsArgs {
  Tensor x;                                // (groups, rows, width), the last dimension dense, of any type
  Tensor ring;                             // (groups, capacity, width) likewise, of the same type; capacity >= rows
  std::int64_t first = 0;                  // number of row 0, at least 0
  const std::int64_t* first_at = nullptr;  // GPU: if given, the kernel reads `first` from it

  void check(Device device) const;
  Cost cost() const { return {WorkKind::other, 2 * bytes_of(x), 0}; }
};
LONGSTRIDE_OP(append_rows, AppendRowsArgs)

}  // namespace longstride::kernels
