#include "framework/optim/optimizer.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "framework/core/errors.h"
#include "framework/ops/basic.h"
#include "kernels/base/tensor_checks.h"

namespace longstride {
namespace {

void check_config(const Optimizer::Config& c) {
  const auto require = [](bool holds, std::string_view name, double value, std::string_view allowed) {
    if (!holds) throw user_error("train.{} is {}, but must be {}", name, value, allowed);
  };
  require(c.lr > 0, "lr", c.lr, "positive");
  require(c.steps > 0, "steps", static_cast<double>(c.steps), "positive");
  require(c.warmup >= 0, "warmup", static_cast<double>(c.warmup), "0 or more steps");
  require(c.lr_floor >= 0 && c.lr_floor < c.lr, "lr_floor", c.lr_floor, "0 or more and below train.lr");
  require(c.decay_steps > 0 || c.schedule != kernels::ScheduleKind::warmup_stable_decay, "decay_steps",
          static_cast<double>(c.decay_steps), "positive");
  require(c.beta1 >= 0 && c.beta1 < 1, "beta1", c.beta1, "in [0, 1)");
  require(c.beta2 >= 0 && c.beta2 < 1, "beta2", c.beta2, "in [0, 1)");
  require(c.epsilon > 0, "epsilon", c.epsilon, "positive");
  require(c.weight_decay >= 0, "weight_decay", c.weight_decay, "0 or more");
  require(c.clip >= 0, "clip", c.clip, "0 (no clipping) or positive");
  require(c.ema >= 0 && c.ema < 1, "ema", c.ema, "in [0, 1)");
}

}  // namespace

Optimizer::Optimizer(const Config& config, const State& state, const std::vector<FlatRange>& ranges,
                     const std::vector<HiddenMatrix>& orthogonalised)
    : config_(config), state_(state) {
  check_config(config);
  kernels::check_vector(state.v, state.m.count(), state.m.dtype(), "v");
  if (config.ema > 0) kernels::check_vector(state.ema, state.m.count(), state.m.dtype(), "ema");
  kernels::check_vector(state.scalars, static_cast<std::int64_t>(scalars_bytes), Dtype::u8, "scalars");
  std::int64_t count = 0;
  for (const FlatRange& range : ranges) {
    if (range.count > 0) divide(updated_.emplace_back(Updated{range, count}), orthogonalised);
    count += range.count;
  }
  LONGSTRIDE_CHECK(count == state.m.count(), "state of {} elements for ranges of {}", state.m.count(), count);
  std::int64_t matrices = 0;
  for (const MatrixGroup& group : by_muon_) matrices += group.matrices;
  LONGSTRIDE_CHECK(matrices == std::ssize(orthogonalised), "only {} of {} matrices are within a range", matrices,
                   orthogonalised.size());
}

void Optimizer::divide(const Updated& all, const std::vector<HiddenMatrix>& orthogonalised) {
  std::int64_t begin = all.range.begin;
  const std::int64_t end = all.range.end(), to_state = all.at - begin;
  const auto by_adam = [&](std::int64_t until) {
    if (until > begin) by_adam_.push_back({{begin, until - begin, all.range.decays}, to_state + begin});
  };
  for (const HiddenMatrix& matrix : orthogonalised) {
    if (matrix.begin < begin || matrix.begin + matrix.count() > end) continue;
    by_adam(matrix.begin);
    add_matrix(by_muon_, matrix, to_state + matrix.begin);
    begin = std::min(end, matrix.begin + matrix.padded_count);
  }
  by_adam(end);
}

void Optimizer::start(Context& ctx, const Tensor& weights) {
  ops::fill_zero(ctx, state_.m);
  ops::fill_zero(ctx, state_.v);
  resume(ctx, config_.dynamic_loss_scale ? kernels::LossScale::first : 1.0f, 0);
  if (config_.ema == 0) return;
  for (const Updated& part : updated_) ops::copy(ctx, part.range.of(weights), part.state_of(state_.ema));
}

void Optimizer::resume(Context& ctx, float loss_scale, std::int64_t good_steps) {
  ops::run(ctx, kernels::StartScalarsArgs{state_.scalars.as<kernels::OptimizerScalars>(), loss_scale, good_steps});
}

Tensor Optimizer::sum_of_squares() const {
  static_assert(offsetof(kernels::OptimizerScalars, sum_of_squares) == 0);
  return Tensor(state_.scalars.data(), Dtype::f64, {1});
}

void Optimizer::measure(Context& ctx, const Tensor& gradient, const std::vector<FlatRange>& ranges) {
  ops::fill_zero(ctx, sum_of_squares());
  for (const FlatRange& range : ranges) ops::sum_of_squares(ctx, range.of(gradient), sum_of_squares());
}

void Optimizer::update(Context& ctx, const Tensor& weights, const Tensor& gradient, const Tensor& low_precision) {
  kernels::check_vector(weights, weights.count(), state_.m.dtype(), "weights");
  kernels::check_vector(gradient, weights.count(), state_.m.dtype(), "gradient");
  if (low_precision.given()) {
    LONGSTRIDE_CHECK(ctx.device == Device::cuda && bytes_of(low_precision.dtype()) == 2, "low_precision is {}",
                     kernels::name_of(low_precision.dtype()));
    kernels::check_vector(low_precision, weights.count(), low_precision.dtype(), "low_precision");
  }
  const FlatTensors flat{weights, gradient, low_precision};
  if (!ctx.planning()) {
    LONGSTRIDE_CHECK(ctx.step != nullptr, "the optimizer needs the step");
    ops::run(ctx, kernels::OptimizerScalarsArgs{state_.scalars.as<kernels::OptimizerScalars>(),
                                                ctx.step,
                                                {config_.lr, config_.warmup, config_.steps, config_.schedule,
                                                 config_.lr_floor, config_.decay_steps},
                                                config_.clip,
                                                config_.dynamic_loss_scale});
    for (const Updated& part : by_adam_) adam(ctx, part, flat);
  }
  for (const MatrixGroup& group : by_muon_)
    muon(ctx, group, {weights, gradient, state_.m, low_precision}, config_.weight_decay, scalars());
  if (ctx.planning() || config_.ema == 0) return;
  for (const Updated& part : updated_)
    ops::run(ctx, kernels::AverageArgs{part.range.of(weights), part.state_of(state_.ema), config_.ema, scalars()});
}

void Optimizer::adam(Context& ctx, const Updated& part, const FlatTensors& flat) const {
  kernels::AdamArgs args;
  args.weights = part.range.of(flat.weights);
  args.gradient = part.range.of(flat.gradient);
  if (flat.low_precision.given()) args.low_precision = part.range.of(flat.low_precision);
  args.m = part.state_of(state_.m);
  args.v = part.state_of(state_.v);
  args.decayed = part.range.decays ? part.range.count : 0;
  args.beta1 = config_.beta1;
  args.beta2 = config_.beta2;
  args.epsilon = config_.epsilon;
  args.weight_decay = config_.weight_decay;
  args.scalars = scalars();
  args.step = ctx.step;
  ops::run(ctx, args);
}

}  // namespace longstride
