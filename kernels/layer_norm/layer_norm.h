// y = (x - mean(x)) / sqrt(var(x) + eps) * gain + bias, over the last dimension (Ba et al. 2016).
// Backward, with h = (x - mean) rstd and g = dy gain: dx = rstd (g - mean(g) - h mean(g h)), dgain += sum over rows of
// dy h, dbias += sum over rows of dy. Sums over rows do not depend on the number of threads.
//
// On the CPU all tensors have one type. On a GPU x and dx have the residual stream's type (f32, or bf16 if the compute
// type is bf16), y, dy and dbranch have the compute type, and gain, bias, mean, rstd, dgain, dbias and partials are
// f32; 2^30 or more rows, columns or elements between rows are refused (std::logic_error).
#pragma once
#include "kernels/base/op.h"
#include "kernels/base/row_chunks.h"
#include "kernels/dropout/dropout.h"

namespace longstride::kernels {

struct LayerNormArgs {
  Tensor x;          // (rows, width), last dimension dense
  Tensor gain;       // (width)
  Tensor bias;       // (width)
  Tensor y;          // (rows, width), last dimension dense
  Tensor mean = {};  // (rows), saved for backward; may be absent in evaluation
  Tensor rstd = {};  // (rows), saved for backward
  float epsilon = 1e-5f;

  void check(Device device) const;
  Cost cost() const { return {WorkKind::normalise, bytes_of(x, y, mean, rstd), 0}; }
};
LONGSTRIDE_OP(layer_norm, LayerNormArgs)

// The gradient that dx holds before the backward pass. In a pre-norm block it is the gradient that reaches x past the
// branches, to which that of the norm is added. In a post-norm block it is a gradient that reaches y by another way
// than dy: dy + dx takes the place of dy.
enum class HeldGradient : std::uint8_t { none, of_x, of_y };

struct LayerNormBackwardArgs {
  Tensor dy;    // (rows, width), last dimension dense
  Tensor x;     // (rows, width), last dimension dense
  Tensor gain;  // (width)
  Tensor mean;  // (rows)
  Tensor rstd;  // (rows)
  Tensor dx;    // (rows, width), last dimension dense; may be dy if both have one type and it holds nothing else
  HeldGradient held = HeldGradient::none;
  Tensor dgain;  // (width), accumulates
  Tensor dbias;  // (width), accumulates
  Tensor scratch = {};

  void check(Device device) const;
  Cost cost() const;
  Tensor scratch_on(Device device) const { return scratch_for(device, 2); }

 protected:
  Tensor scratch_for(Device device, std::int64_t sums) const {
    return {nullptr, dgain.dtype(), {row_chunks(device, x.size(0)).chunks, sums, x.size(1)}};
  }
};
LONGSTRIDE_OP(layer_norm_backward, LayerNormBackwardArgs)

// dropout followed by layer_norm of its y, with the same bits; x is dropout.y.
struct DropoutAddLayerNormArgs : LayerNormArgs {
  DropoutArgs dropout;

  void check(Device device) const;
  Cost cost() const { return {WorkKind::normalise, dropout.bytes() + bytes_of(y, mean, rstd), 0}; }
};
LONGSTRIDE_OP(dropout_add_layer_norm, DropoutAddLayerNormArgs)

// layer_norm_backward followed by dropout of its dx, with the same bits; dropout.branch is dx, and dropout.y may be dy.
// dropout.y may be absent if it would equal dx: dropout.p is 0, and dy and dx have one type.
// branch_sums += the column sums of dropout.y (or dx), which is the gradient of the last bias added before dropout.
struct LayerNormBackwardDropoutArgs : LayerNormBackwardArgs {
  DropoutArgs dropout;
  Tensor branch_sums = {};  // (width), of dgain's type; may be absent

  void check(Device device) const;
  Cost cost() const { return {WorkKind::normalise, LayerNormBackwardArgs::cost().bytes + bytes_of(dropout.y), 0}; }
  Tensor scratch_on(Device device) const { return scratch_for(device, branch_sums.given() ? 3 : 2); }
};
LONGSTRIDE_OP(layer_norm_backward_dropout, LayerNormBackwardDropoutArgs)

}  // namespace longstride::kernels
