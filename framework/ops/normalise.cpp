#include "framework/ops/normalise.h"

#include "framework/ops/dispatch.h"
#include "kernels/dropout/dropout.h"
#include "kernels/layer_norm/layer_norm.h"

namespace longstride::ops {
namespace {

// Without a step there is no dropout.
kernels::DropoutArgs dropout_args(const Context& ctx, const Tensor& branch, float p, std::uint32_t layer,
                                  const Tensor& y) {
  check_contiguous(branch, "branch");
  LONGSTRIDE_CHECK(computes(ctx, branch.dtype()) && p >= 0 && p < 1, "dropout {} of {}", p,
                   kernels::name_of(branch.dtype()));
  LONGSTRIDE_CHECK(goes_with(ctx, branch.dtype(), y.dtype()) || goes_with(ctx, y.dtype(), branch.dtype()),
                   "dropout from {} to {}", kernels::name_of(branch.dtype()), kernels::name_of(y.dtype()));
  check_vector(y, branch.count(), y.dtype(), "y");
  kernels::DropoutArgs args;
  args.branch = branch.view();
  args.y = y.view();
  args.p = ctx.step == nullptr ? 0 : p;
  args.seed = ctx.seed;
  args.layer = layer;
  args.step = ctx.step;
  args.first_element = ctx.first_row * (branch.count() / branch.size(0));
  return args;
}

kernels::DropoutArgs dropout_add_args(const Context& ctx, const Tensor& branch, const Tensor& residual, float p,
                                      std::uint32_t layer, const Tensor& y) {
  kernels::DropoutArgs args = dropout_args(ctx, branch, p, layer, y);
  check_vector(residual, branch.count(), y.dtype(), "residual");
  args.residual = residual.view();
  return args;
}

kernels::LayerNormArgs norm_args(const Context& ctx, const Tensor& x, const Tensor& gain, const Tensor& bias,
                                 float epsilon, const Tensor& y, const Tensor& mean, const Tensor& rstd) {
  kernels::LayerNormArgs args;
  args.x = fold(x, "x");
  args.y = fold(y, "y");
  LONGSTRIDE_CHECK(x.shape() == y.shape(), "x {} and y {} do not match", x.shape().text(), y.shape().text());
  LONGSTRIDE_CHECK(computes(ctx, y.dtype()) && goes_with(ctx, y.dtype(), x.dtype()), "x is {}, y {}",
                   kernels::name_of(x.dtype()), kernels::name_of(y.dtype()));
  const Dtype dtype = wide(ctx, x.dtype());
  check_vector(gain, x.size(-1), dtype, "gain");
  check_vector(bias, x.size(-1), dtype, "bias");
  if (mean.given()) check_vector(mean, args.x.size[0], dtype, "mean");
  if (rstd.given()) check_vector(rstd, args.x.size[0], dtype, "rstd");
  args.gain = gain.view();
  args.bias = bias.view();
  args.mean = mean.view();
  args.rstd = rstd.view();
  args.epsilon = epsilon;
  return args;
}

kernels::LayerNormBackwardArgs norm_backward_args(const Context& ctx, const Tensor& dy, const Tensor& x,
                                                  const Tensor& gain, const Tensor& mean, const Tensor& rstd,
                                                  const Tensor& dx, bool add_to_dx, const Tensor& dgain,
                                                  const Tensor& dbias, int sums, Scratch& scratch) {
  kernels::LayerNormBackwardArgs args;
  args.dy = fold(dy, "dy");
  args.x = fold(x, "x");
  args.dx = fold(dx, "dx");
  LONGSTRIDE_CHECK(dy.shape() == x.shape() && dx.shape() == x.shape(), "dy {}, x {} and dx {} do not match",
                   dy.shape().text(), x.shape().text(), dx.shape().text());
  LONGSTRIDE_CHECK(computes(ctx, dy.dtype()) && goes_with(ctx, dy.dtype(), x.dtype()) && dx.dtype() == x.dtype(),
                   "dy is {}, x {}, dx {}", kernels::name_of(dy.dtype()), kernels::name_of(x.dtype()),
                   kernels::name_of(dx.dtype()));
  const std::int64_t rows = args.x.size[0], width = args.x.size[1];
  const Dtype dtype = wide(ctx, x.dtype());
  check_vector(mean, rows, dtype, "mean");
  check_vector(rstd, rows, dtype, "rstd");
  check_vector(gain, width, dtype, "gain");
  check_vector(dgain, width, dtype, "dgain");
  check_vector(dbias, width, dtype, "dbias");
  args.gain = gain.view();
  args.mean = mean.view();
  args.rstd = rstd.view();
  args.add_to_dx = add_to_dx;
  args.dgain = dgain.view();
  args.dbias = dbias.view();
  args.partials = scratch.tensor({row_chunks(ctx, rows), sums, width}, dtype).view();
  return args;
}

}  // namespace

void layer_norm(Context& ctx, const Tensor& x, const Tensor& gain, const Tensor& bias, float epsilon, const Tensor& y,
                const Tensor& mean, const Tensor& rstd) {
  const kernels::LayerNormArgs args = norm_args(ctx, x, gain, bias, epsilon, y, mean, rstd);
  if (ctx.planning()) return;
  launch(ctx, kernels::cpu::layer_norm, kernels::cuda::layer_norm, args);
}

void layer_norm_backward(Context& ctx, const Tensor& dy, const Tensor& x, const Tensor& gain, const Tensor& mean,
                         const Tensor& rstd, const Tensor& dx, bool add_to_dx, const Tensor& dgain,
                         const Tensor& dbias) {
  Scratch scratch(ctx);
  const kernels::LayerNormBackwardArgs args =
      norm_backward_args(ctx, dy, x, gain, mean, rstd, dx, add_to_dx, dgain, dbias, 2, scratch);
  if (ctx.planning()) return;
  launch(ctx, kernels::cpu::layer_norm_backward, kernels::cuda::layer_norm_backward, args);
}

void dropout_add(Context& ctx, const Tensor& branch, const Tensor& residual, float p, std::uint32_t layer,
                 const Tensor& y) {
  const kernels::DropoutArgs args = dropout_add_args(ctx, branch, residual, p, layer, y);
  if (ctx.planning()) return;
  launch(ctx, kernels::cpu::dropout, kernels::cuda::dropout, args);
}

void dropout_backward(Context& ctx, const Tensor& dy, float p, std::uint32_t layer, const Tensor& dbranch) {
  const kernels::DropoutArgs args = dropout_args(ctx, dy, p, layer, dbranch);
  if (ctx.planning() || (args.p == 0 && dy.data() == dbranch.data())) return;
  launch(ctx, kernels::cpu::dropout, kernels::cuda::dropout, args);
}

void dropout_add_layer_norm(Context& ctx, const Tensor& branch, const Tensor& residual, float p, std::uint32_t layer,
                            const Tensor& sum, const Tensor& gain, const Tensor& bias, float epsilon, const Tensor& y,
                            const Tensor& mean, const Tensor& rstd) {
  const kernels::DropoutAddLayerNormArgs args{dropout_add_args(ctx, branch, residual, p, layer, sum),
                                              norm_args(ctx, sum, gain, bias, epsilon, y, mean, rstd)};
  if (ctx.planning()) return;
  launch(ctx, kernels::cpu::dropout_add_layer_norm, kernels::cuda::dropout_add_layer_norm, args);
}

void layer_norm_backward_dropout(Context& ctx, const Tensor& dy, const Tensor& x, const Tensor& gain,
                                 const Tensor& mean, const Tensor& rstd, const Tensor& dx, bool add_to_dx,
                                 const Tensor& dgain, const Tensor& dbias, float p, std::uint32_t layer,
                                 const Tensor& dbranch, const Tensor& branch_sums) {
  Scratch scratch(ctx);
  if (branch_sums.given()) check_vector(branch_sums, x.size(-1), dgain.dtype(), "branch_sums");
  const kernels::LayerNormBackwardDropoutArgs args{
      norm_backward_args(ctx, dy, x, gain, mean, rstd, dx, add_to_dx, dgain, dbias, branch_sums.given() ? 3 : 2,
                         scratch),
      dropout_args(ctx, dx, p, layer, dbranch), branch_sums.view()};
  if (ctx.planning()) return;
  launch(ctx, kernels::cpu::layer_norm_backward_dropout, kernels::cuda::layer_norm_backward_dropout, args);
}

}  // namespace longstride::ops
