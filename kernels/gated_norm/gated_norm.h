// The output of a scan's heads, normalised and gated (Sun et al. 2023, Dao and Gu 2024):
//   y = h gain silu(gate), h = x / sqrt(mean(x^2) + eps), silu(g) = g sigmoid(g),
// over rows, one per position and head. Without a gain h = x, without a gate nothing is multiplied. The backward pass,
// with u = dy silu(gate) gain: dx = (u - h mean(u h)) / sqrt(mean(x^2) + eps), dgain += dy silu(gate) h,
// dgate = dy h gain silu'(gate); it computes h again.
#pragma once
#include "kernels/base/op.h"
#include "kernels/base/row_chunks.h"

namespace longstride::kernels {

inline constexpr double gated_norm_epsilon = 1e-6;
inline constexpr std::int64_t widest_gated_row = 1024;  // elements, on a GPU

struct GatedNormArgs {
  Tensor x;          // (rows, size) contiguous, f32 or f64 on the CPU; bf16, f16 or f32 on a GPU
  Tensor y;          // like x, written; may be x
  Tensor gain = {};  // (size) exact; one of gain and gate is given
  Tensor gate = {};  // like x

  void check(Device device) const;
  Cost cost() const { return {WorkKind::normalise, bytes_of(x, gate, y), 0}; }
};
LONGSTRIDE_OP(gated_norm, GatedNormArgs)

struct GatedNormBackwardArgs {
  Tensor dy, x;  // like x
  Tensor dx;     // like x, written; may be dy
  Tensor gain = {}, gate = {};
  Tensor dgain = {};  // like gain, added to
  Tensor dgate = {};  // like gate, written
  Tensor scratch = {};

  void check(Device device) const;
  Cost cost() const { return {WorkKind::normalise, bytes_of(dy, x, gate, dx, dgate), 0}; }
  Tensor scratch_on(Device device) const {
    if (!gain.given()) return {};
    return {nullptr, gain.dtype(), {row_chunks(device, x.size(0)).chunks, x.size(1)}};
  }
};
LONGSTRIDE_OP(gated_norm_backward, GatedNormBackwardArgs)

}  // namespace longstride::kernels
