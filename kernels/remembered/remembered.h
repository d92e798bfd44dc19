// How many rows before its segment a row of the batch sees: the last `now` of [compressed memory | memory], which fill
// from their ends. The memory, of `length` rows, takes the segment's positions; once it is full, every `rate` of the
// rows that leave it become one row of the compressed memory. With documents that do not mix, a row sees what is of the
// document that continues: of compressed rows, those made of it alone.
#pragma once
#include "kernels/base/host_device.h"
#include "kernels/base/op.h"

namespace longstride::kernels {

// next = min(now + added, length) while the memory fills, and with e = min(now, length) + added - length > 0 rows that
// leave it min(max(now, length) + floor(e / block) block / rate, length + compressed). Where the segment's last
// document begins at b > 0, now counts as 0 and added as added - b.
struct RememberArgs {
  Tensor now, next;  // (rows), f32 or f64
  std::int64_t length = 0, added = 0;
  std::int64_t compressed = 0, rate = 1;  // rows of the compressed memory; `rate` divides `block`
  std::int64_t block = 1;  // rows that leave, counted from the last, become block / rate by blocks; divides `added`
  Tensor begin = {};       // (rows, 1, added) i32: where each position's document begins; absent: all are one

  void check(Device device) const;
  Cost cost() const { return {WorkKind::other, bytes_of(now, next), 0}; }
};
LONGSTRIDE_OP(remember, RememberArgs)

// How many rows `now` becomes, of this batch row.
struct RememberedRows {
  std::int64_t length, added, compressed, rate, block;

  LONGSTRIDE_HOST_DEVICE std::int64_t after(std::int64_t now, std::int64_t begin) const {
    const std::int64_t own = begin > 0 ? added - begin : added, before = begin > 0 ? 0 : now;
    const std::int64_t leave = (before < length ? before : length) + own - length;
    if (leave <= 0) return before + own;
    const std::int64_t all = (before > length ? before : length) + leave / block * (block / rate);
    return all < length + compressed ? all : length + compressed;
  }
};

// first_key = length - now: rows before it are hidden.
struct FirstKeyArgs {
  Tensor now;               // (rows), f32 or f64
  Tensor first_key;         // (rows) i32
  std::int64_t length = 0;  // rows of both memories

  void check(Device device) const;
  Cost cost() const { return {WorkKind::other, bytes_of(now, first_key), 0}; }
};
LONGSTRIDE_OP(first_key, FirstKeyArgs)

// The rows of [compressed memory | memory | segment] that are of a position's document and not hidden: from length +
// begin, or length - now where that document may have begun before the segment, to length + end.
struct KeyBoundsArgs {
  Tensor now;                 // (rows), f32 or f64; absent: nothing is remembered
  Tensor begin, end;          // (rows, 1, n) i32, contiguous: the document of each position of the segment
  Tensor key_begin, key_end;  // likewise, written
  std::int64_t length = 0;    // rows of both memories

  void check(Device device) const;
  Cost cost() const { return {WorkKind::other, bytes_of(begin, end, key_begin, key_end), 0}; }
};
LONGSTRIDE_OP(key_bounds, KeyBoundsArgs)

}  // namespace longstride::kernels
