// Optional transformations of queries and keys before attention, per head, for x of `size` elements at position p:
//   normalise: h = x / sqrt(mean(x^2) + eps), no gain (Henry et al. 2020, Dehghani et al. 2023); otherwise h = x
//   rotate:    the pair (h_2i, h_2i+1) is rotated by the angle p * base^(-2i / size) (Su et al. 2021, Eq. 34)
//   scale:     y = scale h
// in this order. Statistics and products are fp32 (fp64 for fp64 inputs). The angle is counted in turns and reduced in
// fp64 to at most half a turn before it is rounded to fp32. fp32 could not represent p * base^(-2i / size) itself: at
// position 2^24 one unit in the last place is two radians. In fp64 the error is below 1e-8 radians.
#pragma once
#include <cmath>
#include <cstdint>

#include "kernels/base/op.h"

namespace longstride::kernels {

struct QueryKeyTransform {
  static constexpr double epsilon = 1e-6;
  bool normalise = false;
  double rotary_base = 0;  // 0: no rotation; otherwise sizes are even
  double scale = 1;

  bool rotates() const { return rotary_base > 0; }
  bool any() const { return normalise || rotates() || scale != 1; }
  // The turns of pair i of a head's `size` elements from one position to the next.
  double turns(std::int64_t pair, std::int64_t size) const {
    constexpr double pi = 3.14159265358979323846;
    return std::pow(rotary_base, -2.0 * static_cast<double>(pair) / static_cast<double>(size)) / (2 * pi);
  }
};

struct QueryKeyArgs {
  QueryKeyTransform transform;
  Tensor x, y;  // (batch, seq, heads, size), any strides but the last, which is 1; one type: f32 or f64 on the CPU,
                // bf16, f16 or f32 on the GPU, sizes up to 128. y must not overlap x
  std::int64_t first = 0;                  // position of row 0 of every sequence, below 0 in a memory
  const std::int64_t* first_at = nullptr;  // GPU: if given, the kernel reads `first` from it
  Tensor begin = {};  // (batch, seq) i32, contiguous: what the positions of rows count from; absent: 0

  void check(Device device) const;
  Cost cost() const { return {WorkKind::normalise, bytes_of(x, y), 0}; }
};

// dx = d/dx, from x alone: recomputes what forward computed.
struct QueryKeyBackwardArgs {
  QueryKeyTransform transform;
  Tensor dy, x, dx;  // as above; dx may be dy
  std::int64_t first = 0;
  Tensor begin = {};

  void check(Device device) const;
  Cost cost() const { return {WorkKind::normalise, bytes_of(dy, x, dx), 0}; }
};

LONGSTRIDE_OP(query_key, QueryKeyArgs)
LONGSTRIDE_OP(query_key_backward, QueryKeyBackwardArgs)

}  // namespace longstride::kernels
