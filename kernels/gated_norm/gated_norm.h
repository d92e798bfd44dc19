// The output of a scan's heads, normalised and gated (Sun et al. 2023, Dao and Gu 2024):
//   y = h gain silu(gate), h = x / sqrt(mean(x^2) + eps), silu(g) = g sigmoid(g),
// over rows, one per position and head. Without a gain h = x, without a gate nothing is multiplied. The backward pass,
// with u = dy silu(gate) gain: dx = (u - h mean(u h)) / sqrt(mean(x^2) + eps), dgain += dy silu(gate) h,
// dgate = dy h gain silu'(gate); it computes h again. Gated first, x silu(gate) takes the place of x and 1 that of the
// gate: y = h gain, h = x silu(gate) / sqrt(mean((x silu(gate))^2) + eps).
#pragma once
#include "kernels/base/op.h"
#include "kernels/base/row_chunks.h"

namespace longstride::kernels {

inline constexpr double gated_norm_epsilon = 1e-6;
inline constexpr std::int64_t widest_gated_row = 1024;  // elements, on a GPU

struct GatedNormArgs {
  Tensor x;          // (rows, size) contiguous, f32 or f64 on the CPU; bf16, f16 or f32 on a GPU
  Tensor y;          // like x, written; may be x
  Tensor gain = {};  // (size), or (sets, size) of which row r reads r mod sets; exact; one of gain and gate is given
  Tensor gate = {};  // like x
  bool gate_first = false;  // both are given

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
  bool gate_first = false;
  Tensor scratch = {};

  void check(Device device) const;
  Cost cost() const { return {WorkKind::normalise, bytes_of(dy, x, gate, dx, dgate), 0}; }
  Tensor scratch_on(Device device) const {
    if (!gain.given()) return {};
    return {nullptr, gain.dtype(), {row_chunks(device, x.size(0) * x.size(1) / gain.count()).chunks, gain.count()}};
  }
};
LONGSTRIDE_OP(gated_norm_backward, GatedNormBackwardArgs)

}  // namespace longstride::kernels
