// q = x / scale, rounded to 8 bits: every row of x has a scale of its own, the smallest power of two that brings its
// largest magnitude into the format's range (fp8.h). A product of two such matrices sums over the rows' elements, so
// its result is q's product times the two scales (gemm.h).
//
// q is dense along the rows whichever way x is stored, as tensor cores need 8-bit operands. A row that has an infinity
// or what is not a number becomes zeros with a scale that is not a number, and so does everything that is computed
// from it.
#pragma once
#include "kernels/base/op.h"

namespace longstride::kernels {

struct QuantiseArgs {
  Tensor x;       // (rows, width), one of its strides 1
  Tensor q;       // (rows, width) e4m3 or e5m2, contiguous
  Tensor scales;  // (rows) f32

  void check(Device device) const;
  Cost cost() const { return {WorkKind::quantise, bytes_of(x, q, scales), 0}; }
};
LONGSTRIDE_OP(quantise, QuantiseArgs)

}  // namespace longstride::kernels
