// Layer normalisation, and the residual addition with dropout around every branch.
#pragma once
#include "framework/core/context.h"

namespace longstride::ops {

// y = (x - mean) rstd gain + bias over the last dimension (Ba et al. 2016). x, y (..., width); gain, bias (width);
// mean, rstd (rows), saved for backward, may be absent in evaluation. Here and below, on a GPU, the stream (x,
// residual, sum, dx) may be f32 beside branches of the compute type (y, dy, branch, dbranch), and all vectors are f32.
void layer_norm(Context& ctx, const Tensor& x, const Tensor& gain, const Tensor& bias, float epsilon, const Tensor& y,
                const Tensor& mean, const Tensor& rstd);
// dx = d/dx, plus the former content of dx when add_to_dx (the residual's own gradient); dgain, dbias accumulate.
void layer_norm_backward(Context& ctx, const Tensor& dy, const Tensor& x, const Tensor& gain, const Tensor& mean,
                         const Tensor& rstd, const Tensor& dx, bool add_to_dx, const Tensor& dgain,
                         const Tensor& dbias);

// y = residual + dropout(branch). Each element is kept with probability 1 - p and then scaled by 1 / (1 - p); the mask
// is Philox of (seed, step, layer, global element) and is never stored. No dropout when p is 0 or ctx.step is null.
// branch may be y. Shapes (batch, seq, width): the global element counts from ctx.first_row * seq * width.
void dropout_add(Context& ctx, const Tensor& branch, const Tensor& residual, float p, std::uint32_t layer,
                 const Tensor& y);
// The two in one pass: sum = residual + dropout(branch), y = layer_norm(sum). sum may be residual. The bits are those
// of dropout_add and then layer_norm.
void dropout_add_layer_norm(Context& ctx, const Tensor& branch, const Tensor& residual, float p, std::uint32_t layer,
                            const Tensor& sum, const Tensor& gain, const Tensor& bias, float epsilon, const Tensor& y,
                            const Tensor& mean, const Tensor& rstd);
// layer_norm_backward, and in the same pass dbranch = dropout_backward(dx), which may be dy, and branch_sums (width) +=
// column sums of dbranch, the gradient of a bias that was added last in the branch; branch_sums may be absent.
void layer_norm_backward_dropout(Context& ctx, const Tensor& dy, const Tensor& x, const Tensor& gain,
                                 const Tensor& mean, const Tensor& rstd, const Tensor& dx, bool add_to_dx,
                                 const Tensor& dgain, const Tensor& dbias, float p, std::uint32_t layer,
                                 const Tensor& dbranch, const Tensor& branch_sums = {});

// dbranch = dropout mask applied to dy; dbranch may be dy.
void dropout_backward(Context& ctx, const Tensor& dy, float p, std::uint32_t layer, const Tensor& dbranch);

}  // namespace longstride::ops
