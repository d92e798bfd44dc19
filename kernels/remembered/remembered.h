// How many rows before its segment a row of the batch sees: the last `now` of [compressed memory | memory], which fill
// from their ends. The memory, of `length` rows, takes the segment's positions; once it is full, every `rate` of the
// rows that leave it become one row of the compressed memory.
#pragma once
#include "kernels/base/op.h"

namespace longstride::kernels {

// next = min(now + added, length) while the memory fills, then min(now + added / rate, length + compressed)
struct RememberArgs {
  Tensor now, next;  // (rows), f32 or f64
  std::int64_t length = 0, added = 0;
  std::int64_t compressed = 0, rate = 1;  // rows of the compressed memory; `rate` divides `added`

  void check(Device device) const;
  Cost cost() const { return {WorkKind::other, bytes_of(now, next), 0}; }
};
LONGSTRIDE_OP(remember, RememberArgs)

// first_key = length - now: rows before it are hidden.
struct FirstKeyArgs {
  Tensor now;               // (rows), f32 or f64
  Tensor first_key;         // (rows) i32
  std::int64_t length = 0;  // rows of both memories

  void check(Device device) const;
  Cost cost() const { return {WorkKind::other, bytes_of(now, first_key), 0}; }
};
LONGSTRIDE_OP(first_key, FirstKeyArgs)

}  // namespace longstride::kernels
