// One attention from several, over keys that share none: with lse = log sum_p exp(lse_p), in the order of the pieces,
//   o = sum_p exp(lse_p - lse) o_p.
// A piece whose row saw no key (lse_p = -infinity) is not read; where none did, o = 0 and lse = -infinity.
#pragma once
#include "kernels/base/op.h"

namespace longstride::kernels {

struct MergePartsArgs {
  Tensor parts;  // (pieces batch, n, heads, size) contiguous, piece by piece; as attention takes pieces of keys as a
                 // batch; f32 or f64 on the CPU; bf16, f16 or f32 on a GPU
  Tensor lse_parts;  // (pieces, batch, heads, n) contiguous; f32 on a GPU, else of parts' type
  Tensor o;          // (batch, n, heads, size) contiguous, of parts' type, written; may be the first piece
  Tensor lse;        // (batch, heads, n) contiguous, of lse_parts' type, written

  void check(Device device) const;
  Cost cost() const { return {WorkKind::other, bytes_of(parts, lse_parts, o, lse), 0}; }
};
LONGSTRIDE_OP(merge_parts, MergePartsArgs)

}  // namespace longstride::kernels
