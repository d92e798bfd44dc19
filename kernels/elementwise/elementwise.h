// Fills, copies, additions, sums, quotients, limits and remainders of contiguous arrays.
#pragma once
#include "kernels/base/op.h"

namespace longstride::kernels {

struct FillZeroArgs {
  Tensor x;  // any type

  void check(Device device) const;
  Cost cost() const { return {WorkKind::other, bytes_of(x), 0}; }
};

struct FillArgs {
  Tensor x;  // any type that the device computes in
  double value = 0;

  void check(Device device) const;
  Cost cost() const { return {WorkKind::other, bytes_of(x), 0}; }
};

struct CopyArgs {
  Tensor from;  // any type
  Tensor to;    // same count and type; on a GPU floating types may differ: values are rounded

  void check(Device device) const;
  Cost cost() const { return {WorkKind::other, bytes_of(from, to), 0}; }
};

// to += from
struct AddArgs {
  Tensor from;  // any type that the device computes in
  Tensor to;    // same count and type; on a GPU types may differ

  void check(Device device) const;
  Cost cost() const { return {WorkKind::other, bytes_of(from, to, to), 0}; }
};

// total (1) f64 += sum of f(x), with f(x) = x or x^2, added in f64 in a fixed order: chunks of `chunk` elements, then
// the chunks. Independent of the number of threads.
struct SumArgs {
  static constexpr std::int64_t chunk = 16384;
  static constexpr std::int64_t chunks(std::int64_t count) { return (count + chunk - 1) / chunk; }
  Tensor x;
  Tensor total;  // (1) f64
  Tensor scratch = {};
  bool squares = false;

  void check(Device device) const;
  Cost cost() const { return {squares ? WorkKind::optimizer : WorkKind::loss, bytes_of(x), 0}; }
  Tensor scratch_on(Device) const { return {nullptr, Dtype::f64, {chunks(x.count())}}; }
};

// x /= total, in x's type; all of x becomes 0 if total is 0.
struct DivideArgs {
  Tensor x;      // f32
  Tensor total;  // (1) f64

  void check(Device device) const;
  Cost cost() const { return {WorkKind::loss, 2 * bytes_of(x), 0}; }
};

// x = min(max(x, low), high); what is not a number remains so.
struct ClampArgs {
  Tensor x;             // any type that the device computes in
  Tensor rounded = {};  // on a GPU: the same in another type, which receives the rounded x; optional
  double low = 0, high = 1;

  void check(Device device) const;
  Cost cost() const { return {WorkKind::optimizer, 2 * bytes_of(x) + bytes_of(rounded), 0}; }
};

// y = x mod divisor, of one number that is not negative.
struct RemainderArgs {
  Tensor x;  // (1) i64
  Tensor y;  // (1) i64
  std::int64_t divisor = 1;

  void check(Device device) const;
  Cost cost() const { return {WorkKind::other, bytes_of(x, y), 0}; }
};

LONGSTRIDE_OP(fill_zero, FillZeroArgs)
LONGSTRIDE_OP(fill, FillArgs)
LONGSTRIDE_OP(copy, CopyArgs)
LONGSTRIDE_OP(add, AddArgs)
LONGSTRIDE_OP(sum, SumArgs)
LONGSTRIDE_OP(divide, DivideArgs)
LONGSTRIDE_OP(clamp, ClampArgs)
LONGSTRIDE_OP(remainder, RemainderArgs)

}  // namespace longstride::kernels
