#include "framework/ops/normalise.h"

#include "framework/ops/basic.h"
#include "framework/ops/dispatch.h"
#include "kernels/dropout.h"
#include "kernels/layer_norm.h"

namespace longstride::ops {
namespace {

kernels::DropoutArgs dropout_args(const Context& ctx, const Tensor& branch, float p, std::uint32_t layer,
                                  const Tensor& y) {
  check_contiguous(branch, "branch");
  LONGSTRIDE_CHECK(computes(branch.dtype()) && p >= 0 && p < 1, "dropout {} of {}", p,
                   kernels::name_of(branch.dtype()));
  check_vector(y, branch.count(), branch.dtype(), "y");
  kernels::DropoutArgs args;
  args.branch = branch.view();
  args.y = y.view();
  args.p = p;
  args.seed = ctx.seed;
  args.layer = layer;
  args.step = ctx.step;
  args.first_element = ctx.first_row * (branch.count() / branch.size(0));
  return args;
}

}  // namespace

void layer_norm(Context& ctx, const Tensor& x, const Tensor& gain, const Tensor& bias, float epsilon, const Tensor& y,
                const Tensor& mean, const Tensor& rstd) {
  kernels::LayerNormArgs args;
  args.x = fold(x, "x");
  args.y = fold(y, "y");
  LONGSTRIDE_CHECK(x.shape() == y.shape() && x.dtype() == y.dtype() && computes(x.dtype()),
                   "x {} and y {} do not match", x.shape().text(), y.shape().text());
  check_vector(gain, x.size(-1), x.dtype(), "gain");
  check_vector(bias, x.size(-1), x.dtype(), "bias");
  if (mean.given()) check_vector(mean, args.x.size[0], x.dtype(), "mean");
  if (rstd.given()) check_vector(rstd, args.x.size[0], x.dtype(), "rstd");
  args.gain = gain.view();
  args.bias = bias.view();
  args.mean = mean.view();
  args.rstd = rstd.view();
  args.epsilon = epsilon;
  if (ctx.planning()) return;
  launch(ctx, kernels::cpu::layer_norm, kernels::cuda::layer_norm, args);
}

void layer_norm_backward(Context& ctx, const Tensor& dy, const Tensor& x, const Tensor& gain, const Tensor& mean,
                         const Tensor& rstd, const Tensor& dx, bool add_to_dx, const Tensor& dgain,
                         const Tensor& dbias) {
  kernels::LayerNormBackwardArgs args;
  args.dy = fold(dy, "dy");
  args.x = fold(x, "x");
  args.dx = fold(dx, "dx");
  LONGSTRIDE_CHECK(dy.shape() == x.shape() && dx.shape() == x.shape(), "dy {}, x {} and dx {} do not match",
                   dy.shape().text(), x.shape().text(), dx.shape().text());
  LONGSTRIDE_CHECK(computes(x.dtype()) && dy.dtype() == x.dtype() && dx.dtype() == x.dtype(), "dy is {}, x {}, dx {}",
                   kernels::name_of(dy.dtype()), kernels::name_of(x.dtype()), kernels::name_of(dx.dtype()));
  const std::int64_t rows = args.x.size[0], width = args.x.size[1];
  check_vector(mean, rows, x.dtype(), "mean");
  check_vector(rstd, rows, x.dtype(), "rstd");
  check_vector(gain, width, x.dtype(), "gain");
  check_vector(dgain, width, x.dtype(), "dgain");
  check_vector(dbias, width, x.dtype(), "dbias");
  Scratch scratch(ctx);
  args.partials = scratch.tensor({kernels::row_chunks(rows).chunks, 2, width}, x.dtype()).view();
  if (ctx.planning()) return;
  args.gain = gain.view();
  args.mean = mean.view();
  args.rstd = rstd.view();
  args.add_to_dx = add_to_dx;
  args.dgain = dgain.view();
  args.dbias = dbias.view();
  launch(ctx, kernels::cpu::layer_norm_backward, kernels::cuda::layer_norm_backward, args);
}

void dropout_add(Context& ctx, const Tensor& branch, const Tensor& residual, float p, std::uint32_t layer,
                 const Tensor& y) {
  kernels::DropoutArgs args = dropout_args(ctx, branch, p, layer, y);
  check_vector(residual, branch.count(), branch.dtype(), "residual");
  args.residual = residual.view();
  if (p == 0 || ctx.step == nullptr) return add(ctx, residual, branch, y);
  if (ctx.planning()) return;
  launch(ctx, kernels::cpu::dropout, kernels::cuda::dropout, args);
}

void dropout_backward(Context& ctx, const Tensor& dy, float p, std::uint32_t layer, const Tensor& dbranch) {
  const kernels::DropoutArgs args = dropout_args(ctx, dy, p, layer, dbranch);
  if (ctx.planning()) return;
  if (p == 0 || ctx.step == nullptr) {
    if (dy.data() != dbranch.data()) copy(ctx, dy, dbranch);
    return;
  }
  launch(ctx, kernels::cpu::dropout, kernels::cuda::dropout, args);
}

void dropout_add_layer_norm(Context& ctx, const Tensor& branch, const Tensor& residual, float p, std::uint32_t layer,
                            const Tensor& sum, const Tensor& gain, const Tensor& bias, float epsilon, const Tensor& y,
                            const Tensor& mean, const Tensor& rstd) {
  dropout_add(ctx, branch, residual, p, layer, sum);
  layer_norm(ctx, sum, gain, bias, epsilon, y, mean, rstd);
}

void layer_norm_backward_dropout(Context& ctx, const Tensor& dy, const Tensor& x, const Tensor& gain,
                                 const Tensor& mean, const Tensor& rstd, const Tensor& dx, bool add_to_dx,
                                 const Tensor& dgain, const Tensor& dbias, float p, std::uint32_t layer,
                                 const Tensor& dbranch) {
  layer_norm_backward(ctx, dy, x, gain, mean, rstd, dx, add_to_dx, dgain, dbias);
  dropout_backward(ctx, dx, p, layer, dbranch);
}

}  // namespace longstride::ops
