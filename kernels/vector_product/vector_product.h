// y = x W, a row vector times a matrix, summed in the type of x and y.
#pragma once
#include "kernels/base/op.h"

namespace longstride::kernels {

struct VectorProductArgs {
  Tensor x;       // (rows), of the matrix's type; on a GPU f32
  Tensor matrix;  // (rows, columns), last dimension dense
  Tensor y;       // (columns), of x's type; overwritten

  void check(Device device) const;
  Cost cost() const { return {WorkKind::product, bytes_of(x, matrix, y), 2 * static_cast<double>(matrix.count())}; }
};
LONGSTRIDE_OP(vector_product, VectorProductArgs)

}  // namespace longstride::kernels
