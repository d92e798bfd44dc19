#include "framework/layers/linear.h"

#include <numeric>

#include "framework/ops/linear.h"
#include "framework/ops/run.h"
#include "kernels/column_sum/column_sum.h"
#include "kernels/vector_product/vector_product.h"

namespace longstride {

Linear::Linear(ParameterSet& parameters, const std::string& name, std::int64_t in, std::int64_t out, double deviation,
               bool biased)
    : Linear(parameters, name, in, std::vector<std::int64_t>{out}, deviation, biased) {}

Linear::Linear(ParameterSet& parameters, const std::string& name, std::int64_t in,
               const std::vector<std::int64_t>& outs, double deviation, bool biased)
    : weight_(parameters.add(name + ".weight", {std::accumulate(outs.begin(), outs.end(), std::int64_t{0}), in},
                             {deviation, 0})) {
  if (biased) bias_ = &parameters.add(name + ".bias", {weight_.shape[0]}, {});
  weight_.stacked = outs;
}

void Linear::start_like(const Linear& other, std::int64_t first) const {
  weight_.init.like = other.weight_.name, weight_.init.like_from = first * in();
  if (bias_ != nullptr && other.bias_ != nullptr) bias_->init.like = other.bias_->name, bias_->init.like_from = first;
}

void Linear::apply(Context& ctx, const Tensor& x, const Tensor& y, const Tensor& residual) const {
  ops::linear(ctx, x, weight_.value, bias(), y, residual);
}

void Linear::apply_gelu(Context& ctx, const Tensor& x, const Tensor& pre, const Tensor& y) const {
  ops::linear_gelu(ctx, x, weight_.value, bias(), pre, y);
}

void Linear::apply_relu(Context& ctx, const Tensor& x, const Tensor& y) const {
  ops::linear_relu(ctx, x, weight_.value, bias(), y);
}

void Linear::gradients(Context& ctx, const Tensor& x, const Tensor& dy, const Tensor& dx, const Tensor& addend) const {
  ops::linear_backward_weight(ctx, dy, x, weight_.gradient, bias_gradient());
  ops::linear_backward_input(ctx, dy, weight_.value, dx, addend);
}

void Linear::bias_gradient_of(Context& ctx, const Tensor& dy, std::int64_t begin, std::int64_t end) const {
  ops::run(ctx,
           kernels::ColumnSumArgs{.x = dy.rows().slice(-1, begin, end), .total = bias_gradient().slice(0, begin, end)});
}

void Linear::column_sums_of_dx(Context& ctx, const Tensor& sums) const {
  ops::run(ctx, kernels::VectorProductArgs{.x = bias_gradient(), .matrix = weight_.value, .y = sums});
}

void Linear::gradients_through_gelu(Context& ctx, const Tensor& x, const Tensor& pre, const Tensor& dy,
                                    const Tensor& dpre, const Linear& below) const {
  ops::linear_backward_weight(ctx, dy, x, weight_.gradient, {});
  ops::linear_backward_input_gelu(ctx, dy, weight_.value, pre, dpre, below.bias_gradient());
}

void Linear::gradients_through_relu(Context& ctx, const Tensor& x, const Tensor& dy, const Tensor& dpre,
                                    const Linear& below) const {
  ops::linear_backward_weight(ctx, dy, x, weight_.gradient, {});
  ops::linear_backward_input_relu(ctx, dy, weight_.value, x, dpre, below.bias_gradient());
}

void Linear::gradients_but_bias(Context& ctx, const Tensor& x, const Tensor& dy, const Tensor& dx) const {
  ops::linear_backward_weight(ctx, dy, x, weight_.gradient, {});
  ops::linear_backward_input(ctx, dy, weight_.value, dx);
}

}  // namespace longstride
