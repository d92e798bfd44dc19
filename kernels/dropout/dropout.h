// y = residual + dropout(branch), which layer_norm.h fuses with a normalisation. Each element is kept with probability
// 1 - p and then scaled by 1 / (1 - p). The mask is never stored: element e of the global batch takes word e mod 4 of
// philox(seed, e / 4, step, dropout of this layer) and is dropped when the word is below p 2^32. Backward applies the
// same mask to dy.
#pragma once
#include "kernels/base/op.h"

namespace longstride::kernels {

struct DropoutArgs {
  Tensor branch;         // contiguous; all of one type and count (on a GPU branch may have another type). Backward: dy
  Tensor residual = {};  // absent: y = dropout(branch), as in backward
  Tensor y;              // may be branch (of the same type) or residual
  float p = 0;           // in [0, 1); if 0, nothing is drawn and step and seed are not read
  std::uint64_t seed = 0;
  std::uint32_t layer = 0;
  const std::int64_t* step = nullptr;  // device memory
  std::int64_t first_element = 0;      // index in the global batch of element 0

  void check(Device device) const;
  double bytes() const { return bytes_of(branch, residual, y); }
  Cost cost() const { return {WorkKind::normalise, bytes(), 0}; }
};
LONGSTRIDE_OP(dropout, DropoutArgs)

}  // namespace longstride::kernels
