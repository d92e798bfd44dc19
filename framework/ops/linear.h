// y = x W^T + b, with W of shape (out, in) as PyTorch stores it, and its gradients. On the CPU all tensors have one
// type; on a GPU activations, weights and biases have the compute type, and gradients of parameters are f32.
#pragma once
#include "framework/core/context.h"

namespace longstride::ops {

// x (rows, in), weight (out, in), bias (out) or absent, y (rows, out); leading dimensions of x and y fold into rows.
// Rows may be strided (a slice of the last dimension of a wider tensor).
// `residual`, if given, is added before the only rounding: (rows, out) of y's type; may not be y.
void linear(Context& ctx, const Tensor& x, const Tensor& weight, const Tensor& bias, const Tensor& y,
            const Tensor& residual = {});
// pre = x W^T + b, y = gelu(pre), gelu(z) = z sigmoid(1.702 z). pre and y (rows, out); pre may be y itself when no
// backward follows.
void linear_gelu(Context& ctx, const Tensor& x, const Tensor& weight, const Tensor& bias, const Tensor& pre,
                 const Tensor& y);
// y = max(x W^T + b, 0), which is all that the gradient through it needs.
void linear_relu(Context& ctx, const Tensor& x, const Tensor& weight, const Tensor& bias, const Tensor& y);
// dx (rows, in) = dy (rows, out) W
void linear_backward_input(Context& ctx, const Tensor& dy, const Tensor& weight, const Tensor& dx);
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
