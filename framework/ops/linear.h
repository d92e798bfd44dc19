// y = x W^T + b, with W of shape (out, in) as PyTorch stores it, and its gradients. On the CPU all tensors have one
// type; on a GPU activations, weights and biases have the compute type, and gradients of parameters are f32.
//
// With Context::fp8_products the operands of y and dx are rounded to 8 bits where they are used, x and W to e4m3 and dy
// to e5m2, by rows with scales of their own (kernels/quantise); in dx a row of W is one input's. The gradient of W
// stays in the compute type: for it both operands would have to be turned, and rounded along the sum over all
// positions.
#pragma once
#include "framework/core/context.h"

namespace longstride::ops {

// True if a layer of these sizes multiplies in fp8 when the context says so: cuBLASLt needs rows of whole 16-byte
// words. For the same reason rows of y, dx and what is added have to be a multiple of 16 elements apart.
constexpr bool fits_fp8(std::int64_t in, std::int64_t out) { return in % 16 == 0 && out % 16 == 0; }

// From this width a block's products are expected to gain more in fp8 than rounding their operands costs, by a count of
// bytes and operations on an H200 (docs/notes/2026-11/performance.md). Narrower ones also lose the activation that
// bf16 computes within the product.
inline constexpr std::int64_t fp8_gains_from = 768;

// x (rows, in), weight (out, in), bias (out) or absent, y (rows, out); leading dimensions of x and y fold into rows.
// Rows may be strided (a slice of the last dimension of a wider tensor).
// `residual`, if given, is added before the only rounding: (rows, out) of y's type; may not be y.
void linear(Context& ctx, const Tensor& x, const Tensor& weight, const Tensor& bias, const Tensor& y,
            const Tensor& residual = {});
// y += x W^T, in the compute type.
void linear_add(Context& ctx, const Tensor& x, const Tensor& weight, const Tensor& y);
// pre = x W^T + b, y = gelu(pre), gelu(z) = z sigmoid(1.702 z). pre and y (rows, out); pre may be y itself when no
// backward follows.
void linear_gelu(Context& ctx, const Tensor& x, const Tensor& weight, const Tensor& bias, const Tensor& pre,
                 const Tensor& y);
// y = max(x W^T + b, 0), which is all that the gradient through it needs.
void linear_relu(Context& ctx, const Tensor& x, const Tensor& weight, const Tensor& bias, const Tensor& y);
// dx (rows, in) = dy (rows, out) W, + addend if given; that may not be dx.
void linear_backward_input(Context& ctx, const Tensor& dy, const Tensor& weight, const Tensor& dx,
                           const Tensor& addend = {});
// The same for an input gelu(pre), without a separate pass: dpre (rows, in) = (dy W) gelu'(pre), and dbias (in)
// += column sums of dpre, the gradient of the bias in pre; dbias may be absent. dpre must not be pre.
void linear_backward_input_gelu(Context& ctx, const Tensor& dy, const Tensor& weight, const Tensor& pre,
                                const Tensor& dpre, const Tensor& dbias = {});
// The same for an input y = max(pre, 0): dpre = dy W where y > 0, else 0. dpre must not be y.
void linear_backward_input_relu(Context& ctx, const Tensor& dy, const Tensor& weight, const Tensor& y,
                                const Tensor& dpre, const Tensor& dbias = {});
// dweight (out, in) += dy^T x; dbias (out) += column sums of dy; dbias may be absent.
void linear_backward_weight(Context& ctx, const Tensor& dy, const Tensor& x, const Tensor& dweight,
                            const Tensor& dbias);

}  // namespace longstride::ops
