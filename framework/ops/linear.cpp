#include "framework/ops/linear.h"

#include "framework/ops/run.h"
#include "kernels/column_sum/column_sum.h"
#include "kernels/gemm/gemm.h"
#include "kernels/quantise/quantise.h"

namespace longstride::ops {

using kernels::ColumnSumArgs;
using kernels::Epilogue;
using kernels::GemmArgs;

namespace {

// Depends on sizes and strides alone, so that a plan, which has no addresses, comes to the same answer.
bool multiplies_in_fp8(const Context& ctx, const GemmArgs& args) {
  const auto spaced = [](const Tensor& t) { return !t.given() || t.stride(0) % 16 == 0 || t.size(0) == 1; };
  return ctx.fp8_products && fits_fp8(args.a.size(1), args.b.size(1)) && spaced(args.c) && spaced(args.addend);
}

// A product of a layer, whose a is dense along the depth: rounded to this 8-bit type, and b to e4m3, in fp8.
void multiply(Context& ctx, GemmArgs args, Dtype a_type) {
  if (!multiplies_in_fp8(ctx, args)) return run(ctx, args);
  args.check(ctx.device);
  Scratch scratch(ctx);
  const auto quantised = [&](const Tensor& x, Dtype dtype, Tensor& scales) {
    const Tensor q = scratch.tensor(x.shape(), dtype);
    scales = scratch.tensor({x.size(0)}, Dtype::f32);
    run(ctx, kernels::QuantiseArgs{.x = x, .q = q, .scales = scales});
    return q;
  };
  args.a = quantised(args.a, a_type, args.a_scales);
  args.b = quantised(args.b.transposed(), Dtype::e4m3, args.b_scales).transposed();
  run(ctx, args);
}

constexpr Dtype of_activations = Dtype::e4m3, of_gradients = Dtype::e5m2;

}  // namespace

void linear(Context& ctx, const Tensor& x, const Tensor& weight, const Tensor& bias, const Tensor& y,
            const Tensor& residual) {
  multiply(ctx,
           GemmArgs{.a = x.rows(),
                    .b = weight.transposed(),
                    .c = y.rows(),
                    .bias = bias,
                    .addend = residual.given() ? residual.rows() : residual,
                    .epilogue = bias.given() ? Epilogue::bias : Epilogue::none},
           of_activations);
}

void linear_add(Context& ctx, const Tensor& x, const Tensor& weight, const Tensor& y) {
  run(ctx, GemmArgs{.a = x.rows(), .b = weight.transposed(), .c = y.rows(), .accumulate = true});
}

void linear_gelu(Context& ctx, const Tensor& x, const Tensor& weight, const Tensor& bias, const Tensor& pre,
                 const Tensor& y) {
  multiply(ctx,
           GemmArgs{.a = x.rows(),
                    .b = weight.transposed(),
                    .c = pre.rows(),
                    .bias = bias,
                    .activated = y.rows(),
                    .epilogue = Epilogue::bias_gelu},
           of_activations);
}

void linear_relu(Context& ctx, const Tensor& x, const Tensor& weight, const Tensor& bias, const Tensor& y) {
  multiply(
      ctx,
      GemmArgs{.a = x.rows(), .b = weight.transposed(), .c = y.rows(), .bias = bias, .epilogue = Epilogue::bias_relu},
      of_activations);
}

void linear_backward_input(Context& ctx, const Tensor& dy, const Tensor& weight, const Tensor& dx,
                           const Tensor& addend) {
  multiply(ctx,
           GemmArgs{.a = dy.rows(), .b = weight, .c = dx.rows(), .addend = addend.given() ? addend.rows() : addend},
           of_gradients);
}

namespace {

void linear_backward_input_through(Context& ctx, Epilogue epilogue, const Tensor& dy, const Tensor& weight,
                                   const Tensor& activated, const Tensor& dpre, const Tensor& dbias) {
  multiply(ctx,
           GemmArgs{.a = dy.rows(),
                    .b = weight,
                    .c = dpre.rows(),
                    .activated = activated.rows(),
                    .column_sums = dbias,
                    .epilogue = epilogue},
           of_gradients);
}

}  // namespace

void linear_backward_input_gelu(Context& ctx, const Tensor& dy, const Tensor& weight, const Tensor& pre,
                                const Tensor& dpre, const Tensor& dbias) {
  linear_backward_input_through(ctx, Epilogue::gelu_backward, dy, weight, pre, dpre, dbias);
}

void linear_backward_input_relu(Context& ctx, const Tensor& dy, const Tensor& weight, const Tensor& y,
                                const Tensor& dpre, const Tensor& dbias) {
  linear_backward_input_through(ctx, Epilogue::relu_backward, dy, weight, y, dpre, dbias);
}

void linear_backward_weight(Context& ctx, const Tensor& dy, const Tensor& x, const Tensor& dweight,
                            const Tensor& dbias) {
  run(ctx, GemmArgs{.a = dy.rows().transposed(), .b = x.rows(), .c = dweight, .accumulate = true});
  if (dbias.given()) run(ctx, ColumnSumArgs{.x = dy.rows(), .total = dbias});
}

}  // namespace longstride::ops
