// Ops with positional arguments, for the many short calls in tests.
#pragma once
#include <initializer_list>

#include "framework/ops/basic.h"
#include "framework/ops/cross_entropy.h"
#include "framework/ops/run.h"
#include "kernels/embedding/embedding.h"
#include "kernels/layer_norm/layer_norm.h"
#include "kernels/query_key/query_key.h"

namespace longstride::testing {

struct Norm {
  const Tensor &gain, &bias;
  Tensor mean = {}, rstd = {};
};
struct NormGradients {
  const Tensor &dgain, &dbias;
};
struct Dropout {
  float p;
  std::uint32_t layer;
};

inline kernels::LayerNormArgs norm_args(const Tensor& x, const Norm& norm, const Tensor& y) {
  return {x.rows(), norm.gain, norm.bias, y.rows(), norm.mean, norm.rstd, 1e-5f};
}

inline kernels::LayerNormBackwardArgs norm_backward_args(const Tensor& dy, const Tensor& x, const Norm& norm,
                                                         const Tensor& dx, kernels::HeldGradient held,
                                                         const NormGradients& g) {
  return {dy.rows(), x.rows(), norm.gain, norm.mean, norm.rstd, dx.rows(), held, g.dgain, g.dbias};
}

// As in a layer: no dropout without a step.
inline kernels::DropoutArgs dropout_args(const Context& ctx, const Tensor& from, const Dropout& d, const Tensor& y,
                                         const Tensor& residual = {}) {
  const float p = ctx.step == nullptr ? 0 : d.p;
  return {from, residual, y, p, ctx.seed, d.layer, ctx.step, ctx.first_row * (from.count() / from.size(0))};
}

// The three tensors are branch, residual and sum.
inline void dropout_add_layer_norm(Context& ctx, const Tensor& branch, const Tensor& residual, const Tensor& sum,
                                   const Dropout& d, const Norm& norm, const Tensor& y) {
  ops::run(ctx, kernels::DropoutAddLayerNormArgs{norm_args(sum, norm, y), dropout_args(ctx, branch, d, sum, residual)});
}

inline void layer_norm_backward_dropout(Context& ctx, const kernels::LayerNormBackwardArgs& norm, const Tensor& dx,
                                        const Dropout& d, const Tensor& dbranch, const Tensor& sums = {}) {
  ops::run(ctx, kernels::LayerNormBackwardDropoutArgs{norm, dropout_args(ctx, dx, d, dbranch), sums});
}

// Tables of an embedding, or their gradients.
inline kernels::EmbeddingArgs embedding(const Tensor& start, const Tensor& token_table,
                                        std::initializer_list<kernels::PositionTable> positions,
                                        std::int64_t first = 0) {
  kernels::EmbeddingArgs args;
  args.start = start;
  args.token_table = token_table;
  for (const kernels::PositionTable& p : positions) args.positions[args.tables++] = p;
  args.first = first;
  return args;
}

inline void embed(Context& ctx, kernels::EmbeddingArgs args, const Tensor& tokens, const Tensor& y) {
  args.tokens = tokens;
  args.y = y;
  ops::run(ctx, args);
}

inline void embed_backward(Context& ctx, const Tensor& dy, const Tensor& tokens, kernels::EmbeddingArgs gradients) {
  gradients.tokens = tokens;
  gradients.y = dy;
  ops::run(ctx, kernels::EmbeddingBackwardArgs{gradients});
}

}  // namespace longstride::testing
