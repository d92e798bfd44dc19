#include "framework/ops/linear.h"

#include "framework/ops/run.h"
#include "kernels/column_sum/column_sum.h"
#include "kernels/gemm/gemm.h"

namespace longstride::ops {

using kernels::ColumnSumArgs;
using kernels::Epilogue;
using kernels::GemmArgs;

void linear(Context& ctx, const Tensor& x, const Tensor& weight, const Tensor& bias, const Tensor& y,
            const Tensor& residual) {
  run(ctx, GemmArgs{.a = x.rows(),
                    .b = weight.transposed(),
                    .c = y.rows(),
                    .bias = bias,
                    .addend = residual.given() ? residual.rows() : residual,
                    .epilogue = bias.given() ? Epilogue::bias : Epilogue::none});
}

void linear_gelu(Context& ctx, const Tensor& x, const Tensor& weight, const Tensor& bias, const Tensor& pre,
                 const Tensor& y) {
  run(ctx, GemmArgs{.a = x.rows(),
                    .b = weight.transposed(),
                    .c = pre.rows(),
                    .bias = bias,
                    .activated = y.rows(),
                    .epilogue = Epilogue::bias_gelu});
}

void linear_relu(Context& ctx, const Tensor& x, const Tensor& weight, const Tensor& bias, const Tensor& y) {
  run(ctx,
      GemmArgs{.a = x.rows(), .b = weight.transposed(), .c = y.rows(), .bias = bias, .epilogue = Epilogue::bias_relu});
}

void linear_backward_input(Context& ctx, const Tensor& dy, const Tensor& weight, const Tensor& dx) {
  run(ctx, GemmArgs{.a = dy.rows(), .b = weight, .c = dx.rows()});
}

namespace {

void linear_backward_input_through(Context& ctx, Epilogue epilogue, const Tensor& dy, const Tensor& weight,
                                   const Tensor& activated, const Tensor& dpre, const Tensor& dbias) {
  run(ctx, GemmArgs{.a = dy.rows(),
                    .b = weight,
                    .c = dpre.rows(),
                    .activated = activated.rows(),
                    .column_sums = dbias,
                    .epilogue = epilogue});
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
