// A causal convolution of every channel by itself over a few positions, and SiLU behind it (Dao and Gu 2024):
//   y_t = silu(p_t), p_t = bias + sum over j < width of weight_(width - 1 - j) x_(t - j)
// Rows before the first are those of `before`, or 0. What is of another document counts as 0.
#pragma once
#include "kernels/base/op.h"
#include "kernels/base/row_chunks.h"

namespace longstride::kernels {

inline constexpr std::int64_t widest_convolution = 4;

struct ShortConvolutionArgs {
  Tensor x;       // (batch, n, channels) contiguous, f32 or f64 on the CPU; bf16, f16 or f32 on a GPU
  Tensor weight;  // (channels, width) contiguous, exact; width from 2 to widest_convolution
  Tensor y;       // like x, written
  // (batch, width - 1, channels) contiguous, of x's type: the rows before x, and behind it the last ones, of which
  // those of other documents than the last are 0; one tensor if n = 1.
  Tensor before = {}, after = {};
  Tensor begin = {};  // (batch, 1, n) i32, as group_bounds gives; a row's first document continues `before`
  Tensor bias = {};   // (channels) exact; none: 0

  void check(Device device) const;
  Cost cost() const { return {WorkKind::other, bytes_of(x, y), 2 * static_cast<double>(x.count() * weight.size(1))}; }
};
LONGSTRIDE_OP(short_convolution, ShortConvolutionArgs)

struct ShortConvolutionBackwardArgs {
  Tensor dy, x;  // like x
  Tensor weight;
  Tensor dx;       // like x, written; not dy
  Tensor dweight;  // like weight, added to
  Tensor before = {}, begin = {};
  Tensor bias = {}, dbias = {};  // dbias: like bias, added to
  Tensor scratch = {};

  void check(Device device) const;
  Cost cost() const {
    return {WorkKind::other, bytes_of(dy, x, dx), 6 * static_cast<double>(x.count() * weight.size(1))};
  }
  Tensor scratch_on(Device device) const {
    const std::int64_t sums = weight.count() + (bias.given() ? bias.count() : 0);
    return {nullptr, weight.dtype(), {row_chunks(device, x.size(0) * x.size(1)).chunks, sums}};
  }
};
LONGSTRIDE_OP(short_convolution_backward, ShortConvolutionBackwardArgs)

}  // namespace longstride::kernels
