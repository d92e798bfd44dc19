#include "framework/mixers/distance/term.h"

#include <algorithm>

#include "framework/layers/dropout.h"
#include "framework/ops/basic.h"
#include "framework/ops/linear.h"
#include "kernels/sinusoid/sinusoid.h"

namespace longstride {

SharedDistance declare_shared_distance(ParameterSet& parameters, const std::string& prefix, const DistanceShape& shape,
                                       const DistanceConfig& config) {
  SharedDistance shared;
  if (config.table == DistanceTable::learned && config.shared_table)
    shared.table =
        &parameters.add(prefix + "distance.table", {config.distances, shape.key_size}, {shape.table_deviation, 0});
  if (config.biases != BiasSharing::model) return shared;
  shared.content_bias = &parameters.add(prefix + "distance.content_bias", {shape.heads * shape.key_size}, {});
  if (config.table != DistanceTable::none)
    shared.position_bias = &parameters.add(prefix + "distance.position_bias", {shape.heads * shape.key_size}, {});
  return shared;
}

DistanceTerm::DistanceTerm(ParameterSet& parameters, const std::string& name, const DistanceShape& shape,
                           const DistanceConfig& config, const SharedDistance& shared)
    : shape_(shape), config_(config), table_(shared.table) {
  content_bias_ = shared.content_bias;
  position_bias_ = shared.position_bias;
  const std::int64_t size = shape.heads * shape.key_size;
  if (config.table == DistanceTable::sinusoid)
    weight_ = &parameters.add(name + ".distance.weight", {size, shape.width}, {shape.deviation, 0});
  if (config.table == DistanceTable::learned && table_ == nullptr)
    table_ = &parameters.add(name + ".distance.table", {config.distances, shape.heads, shape.key_size},
                             {shape.table_deviation, 0});
  if (config.biases != BiasSharing::layer) return;
  content_bias_ = &parameters.add(name + ".content_bias", {size}, {});
  if (config.table != DistanceTable::none) position_bias_ = &parameters.add(name + ".position_bias", {size}, {});
}

Tensor DistanceTerm::sinusoid(Context& ctx, std::int64_t rows, Scratch& scratch) const {
  const Tensor waves = scratch.tensor({rows, shape_.width}, ctx.compute);
  ops::run(ctx, kernels::SinusoidArgs{waves});
  const Dropout dropout = {static_cast<float>(config_.table_dropout), dropout_ids::distances};
  dropout.apply_to_shared(ctx, waves);
  return waves;
}

Tensor DistanceTerm::table(Context& ctx, std::int64_t keys, Scratch& scratch, Tape* tape) const {
  if (config_.table == DistanceTable::none) return {};
  const std::int64_t heads = table_heads(), size = shape_.key_size;
  if (weight_ != nullptr) {
    const std::int64_t rows = sinusoid_rows(keys);
    const Tensor t = scratch.tensor({rows, heads, size}, ctx.compute, tape);
    Scratch inner(ctx);
    Context exact = ctx.without_fp8();
    ops::linear(exact, sinusoid(ctx, rows, inner), weight_->value, {}, t.reshape({rows, heads * size}));
    return t;
  }
  const std::int64_t rows = table_->shape[0];
  if (!starts_at_one()) return clamped(table_->value.reshape({rows, heads, size}));
  const Tensor t = scratch.tensor({rows + 1, heads, size}, ctx.compute, tape);
  ops::fill_zero(ctx, t.slice(0, 0, 1));  // no pair reads it, but products do
  ops::copy(ctx, table_->value, t.slice(0, 1, rows + 1));
  return clamped(t);
}

Tensor DistanceTerm::table_shape(std::int64_t keys) const {
  if (config_.table == DistanceTable::none) return {};
  const std::int64_t rows = weight_ != nullptr ? sinusoid_rows(keys) : table_->shape[0] + config_.first_distance();
  return clamped(Tensor(nullptr, Dtype::f32, {rows, table_heads(), shape_.key_size}));
}

Tensor DistanceTerm::clamped(const Tensor& table) const {
  return config_.clamp > 0 ? table.slice(0, 0, config_.clamp + 1) : table;
}

Tensor DistanceTerm::gradient_for(Context& ctx, const Tensor& table, Scratch& scratch) const {
  if (!table.given()) return {};
  if (weight_ == nullptr && !starts_at_one()) return table_->gradient.reshape(table.shape());
  const Tensor gradient = scratch.tensor(table.shape(), ctx.exact);
  ops::fill_zero(ctx, gradient);
  return gradient;
}

void DistanceTerm::add_gradient(Context& ctx, const Tensor& gradient) const {
  if (!gradient.given() || (weight_ == nullptr && !starts_at_one())) return;
  const std::int64_t rows = gradient.size(0);
  if (weight_ == nullptr) return ops::run(ctx, kernels::AddArgs{gradient.slice(0, 1, rows), table_->gradient});
  Scratch scratch(ctx);
  const Tensor flat = gradient.reshape({rows, gradient.count() / rows});
  const Tensor rounded = ctx.compute == ctx.exact ? flat : scratch.tensor(flat.shape(), ctx.compute);
  if (ctx.compute != ctx.exact) ops::copy(ctx, flat, rounded);
  ops::linear_backward_weight(ctx, rounded, sinusoid(ctx, rows, scratch), weight_->gradient, {});
}

}  // namespace longstride
