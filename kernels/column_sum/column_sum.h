// total (columns) += sum over rows of x: the gradient of a bias. Independent of the number of threads.
#pragma once
#include "kernels/base/op.h"
#include "kernels/base/row_chunks.h"

namespace longstride::kernels {

struct ColumnSumArgs {
  Tensor x;      // (rows, columns), last dimension dense; all of one type; on a GPU total f32
  Tensor total;  // (columns)
  Tensor scratch = {};

  void check(Device device) const;
  Cost cost() const { return {WorkKind::column_sum, bytes_of(x), 0}; }
  Tensor scratch_on(Device device) const {
    return {nullptr, total.dtype(), {row_chunks(device, x.size(0)).chunks, x.size(1)}};
  }
};

LONGSTRIDE_OP(column_sum, ColumnSumArgs)

}  // namespace longstride::kernels
