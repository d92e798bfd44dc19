#include "framework/ops/linear.h"

#include "framework/ops/dispatch.h"
#include "kernels/column_sum/column_sum.h"
#include "kernels/gelu/gelu.h"
#include "kernels/gemm/gemm.h"

namespace longstride::ops {
namespace {

using kernels::Epilogue;
using kernels::GemmArgs;
using kernels::View;

// Of the three, `result` is computed: on a GPU it may be f32 beside 16-bit factors; the bias is of y's type.
void check_product(const Context& ctx, const View& x, const View& weight, const View& y, const View& result) {
  LONGSTRIDE_CHECK(x.size[0] == y.size[0] && x.size[1] == weight.size[1] && y.size[1] == weight.size[0],
                   "x ({}, {}), weight ({}, {}) and y ({}, {}) do not match", x.size[0], x.size[1], weight.size[0],
                   weight.size[1], y.size[0], y.size[1]);
  const View& factor = &result == &x ? weight : x;
  const auto fits = [&](const View& v) {
    return &v == &result ? goes_with(ctx, factor.dtype, v.dtype) : v.dtype == factor.dtype;
  };
  LONGSTRIDE_CHECK(computes(ctx, factor.dtype) && fits(x) && fits(weight) && fits(y), "x is {}, weight {}, y {}",
                   kernels::name_of(x.dtype), kernels::name_of(weight.dtype), kernels::name_of(y.dtype));
}

// Metered by itself: it is one range or two.
void gemm(const Context& ctx, const GemmArgs& args) {
  (ctx.device == Device::cpu ? kernels::cpu::gemm : kernels::cuda::gemm)(args, ctx.launch);
}

GemmArgs forward_args(const Context& ctx, const Tensor& x, const Tensor& weight, const Tensor& y) {
  GemmArgs args;
  args.a = fold(x, "x");
  args.b = fold(weight, "weight");
  args.c = fold(y, "y");
  check_product(ctx, args.a, args.b, args.c, args.c);
  args.b = transposed(args.b);
  return args;
}

GemmArgs backward_input_args(const Context& ctx, const Tensor& dy, const Tensor& weight, const Tensor& dx) {
  GemmArgs args;
  args.a = fold(dy, "dy");
  args.b = fold(weight, "weight");
  args.c = fold(dx, "dx");
  check_product(ctx, args.c, args.b, args.a, args.c);
  return args;
}

}  // namespace

void linear(Context& ctx, const Tensor& x, const Tensor& weight, const Tensor& bias, const Tensor& y) {
  GemmArgs args = forward_args(ctx, x, weight, y);
  if (bias.given()) {
    check_vector(bias, weight.size(0), y.dtype(), "bias");
    args.bias = bias.view();
    args.epilogue = Epilogue::bias;
  }
  if (ctx.planning()) return;
  gemm(ctx, args);
}

void linear_backward_input(Context& ctx, const Tensor& dy, const Tensor& weight, const Tensor& dx) {
  const GemmArgs args = backward_input_args(ctx, dy, weight, dx);
  if (ctx.planning()) return;
  gemm(ctx, args);
}

void linear_backward_input_gelu(Context& ctx, const Tensor& dy, const Tensor& weight, const Tensor& pre,
                                const Tensor& dpre, const Tensor& dbias) {
  GemmArgs args = backward_input_args(ctx, dy, weight, dpre);
  args.activated = fold(pre, "pre");
  LONGSTRIDE_CHECK(pre.shape() == dpre.shape() && pre.dtype() == dpre.dtype(), "pre {} and dpre {} do not match",
                   pre.shape().text(), dpre.shape().text());
  LONGSTRIDE_CHECK(ctx.planning() || pre.data() != dpre.data(), "dpre may not be pre");
  args.epilogue = Epilogue::gelu_backward;
  Scratch scratch(ctx);
  if (dbias.given()) {
    check_vector(dbias, dpre.size(-1), wide(ctx, dpre.dtype()), "dbias");
    args.column_sums = dbias.view();
    args.partials = scratch.tensor({row_chunks(ctx, args.c.size[0]), dbias.count()}, dbias.dtype()).view();
  }
  if (ctx.planning()) return;
  gemm(ctx, args);
}

void linear_backward_weight(Context& ctx, const Tensor& dy, const Tensor& x, const Tensor& dweight,
                            const Tensor& dbias) {
  GemmArgs args;
  args.a = fold(dy, "dy");
  args.b = fold(x, "x");
  args.c = fold(dweight, "dweight");
  check_product(ctx, args.b, args.c, args.a, args.c);
  args.accumulate = true;
  kernels::ColumnSumArgs sums;
  Scratch scratch(ctx);
  if (dbias.given()) {
    check_vector(dbias, dweight.size(0), wide(ctx, dy.dtype()), "dbias");
    sums.x = args.a;
    sums.total = dbias.view();
    sums.partials = scratch.tensor({row_chunks(ctx, sums.x.size[0]), dbias.count()}, dbias.dtype()).view();
  }
  if (ctx.planning()) return;
  args.a = transposed(args.a);
  gemm(ctx, args);
  if (dbias.given()) launch(ctx, kernels::cpu::column_sum, kernels::cuda::column_sum, sums);
}

void linear_gelu(Context& ctx, const Tensor& x, const Tensor& weight, const Tensor& bias, const Tensor& pre,
                 const Tensor& y) {
  GemmArgs args = forward_args(ctx, x, weight, pre);
  check_vector(bias, weight.size(0), y.dtype(), "bias");
  LONGSTRIDE_CHECK(pre.shape() == y.shape() && pre.dtype() == y.dtype(), "pre {} and y {} do not match",
                   pre.shape().text(), y.shape().text());
  args.bias = bias.view();
  args.activated = fold(y, "y");
  args.epilogue = Epilogue::bias_gelu;
  if (ctx.planning()) return;
  gemm(ctx, args);
}

void gelu(Context& ctx, const Tensor& pre, const Tensor& y) {
  check_contiguous(pre, "pre");
  LONGSTRIDE_CHECK(computes(ctx, pre.dtype()), "pre is {}", kernels::name_of(pre.dtype()));
  check_vector(y, pre.count(), pre.dtype(), "y");
  if (ctx.planning()) return;
  launch(ctx, kernels::cpu::gelu, kernels::cuda::gelu, {pre.view(), y.view()});
}

void gelu_backward(Context& ctx, const Tensor& dy, const Tensor& pre, const Tensor& dpre) {
  check_contiguous(pre, "pre");
  LONGSTRIDE_CHECK(computes(ctx, pre.dtype()), "pre is {}", kernels::name_of(pre.dtype()));
  check_vector(dy, pre.count(), pre.dtype(), "dy");
  check_vector(dpre, pre.count(), pre.dtype(), "dpre");
  if (ctx.planning()) return;
  launch(ctx, kernels::cpu::gelu_backward, kernels::cuda::gelu_backward, {dy.view(), pre.view(), dpre.view()});
}

}  // namespace longstride::ops
