// How many positions before its segment a row remembers. Memory holds the last ones: `remembered` of its `length` rows.
#pragma once
#include "kernels/base/op.h"

namespace longstride::kernels {

// next = min(now + added, length)
struct RememberArgs {
  Tensor now, next;  // (rows), f32 or f64
  std::int64_t length = 0, added = 0;

  void check(Device device) const;
  Cost cost() const { return {WorkKind::other, bytes_of(now, next), 0}; }
};
LONGSTRIDE_OP(remember, RememberArgs)

// first_key = length - now: rows of memory before it are hidden.
struct FirstKeyArgs {
  Tensor now;        // (rows), f32 or f64
  Tensor first_key;  // (rows) i32
  std::int64_t length = 0;

  void check(Device device) const;
  Cost cost() const { return {WorkKind::other, bytes_of(now, first_key), 0}; }
};
LONGSTRIDE_OP(first_key, FirstKeyArgs)

}  // namespace longstride::kernels
