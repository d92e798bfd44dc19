#include "framework/optim/optimizer.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "framework/core/errors.h"
#include "framework/ops/basic.h"
#include "kernels/adagrad/adagrad.h"
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
  require(c.decay_from > 0 || c.schedule != kernels::ScheduleKind::reciprocal_sqrt, "decay_from",
          static_cast<double>(c.decay_from), "positive");
  require(c.beta1 >= 0 && c.beta1 < 1, "beta1", c.beta1, "in [0, 1)");
  require(c.beta2 >= 0 && c.beta2 < 1, "beta2", c.beta2, "in [0, 1)");
  require(c.epsilon > 0, "epsilon", c.epsilon, "positive");
  require(c.weight_decay >= 0, "weight_decay", c.weight_decay, "0 or more");
  require(c.clip >= 0, "clip", c.clip, "0 (no clipping) or positive");
  require(c.ema >= 0 && c.ema < 1, "ema", c.ema, "in [0, 1)");
}

// The elements that two ranges have in common; a count of 0 or less: none.
FlatRange common(const FlatRange& a, const FlatRange& b) {
  const std::int64_t begin = std::max(a.begin, b.begin);
  return {begin, std::min(a.end(), b.end()) - begin, a.decays};
}

}  // namespace

OptimizerParts optimizer_parts(const ParameterSet& parameters, const Optimizer::Config& config) {
  OptimizerParts parts;
  if (config.kind == OptimizerKind::muon) parts.orthogonalised = hidden_matrices(parameters);
  if (config.kind == OptimizerKind::adafactor) parts.factored = factored_matrices(parameters);
  if (config.kind == OptimizerKind::adagrad && config.tensor_clip > 0)
    for (const FactoredMatrix& m : factored_matrices(parameters))
      parts.tensors.push_back({m.begin, m.rows * m.columns});
  for (const Parameter& p : parameters.all())
    if (p.limits) parts.limited.push_back({{p.offset, p.shape.count()}, *p.limits});
  return parts;
}

Optimizer::Optimizer(const Config& config, const State& state, const std::vector<FlatRange>& ranges,
                     const OptimizerParts& parts)
    : config_(config),
      state_(state),
      dtype_((state.v.given() ? state.v : state.factors).dtype()),
      tensors_(parts.tensors) {
  check_config(config);
  std::int64_t count = 0, decayed = 0, matrices = 0;
  for (const FlatRange& range : ranges) {
    if (range.count > 0) divide(updated_.emplace_back(Updated{range, count}), parts.orthogonalised);
    for (const LimitedRange& limited : parts.limited)
      if (const FlatRange part = common(range, limited.range); part.count > 0)
        limited_.push_back({part, limited.limits});
    if (range.decays) decayed = range.end();
    count += range.count;
  }
  check_state(count);
  for (const MatrixGroup& group : by_muon_) matrices += group.matrices;
  LONGSTRIDE_CHECK(matrices == std::ssize(parts.orthogonalised), "only {} of {} matrices are within a range", matrices,
                   parts.orthogonalised.size());
  factored_ = grouped(parts.factored, decayed);
}

void Optimizer::check_state(std::int64_t count) const {
  const auto check = [&](const Tensor& t, bool needed, const char* name) {
    LONGSTRIDE_CHECK(t.given() == needed, "{} is {}", name, needed ? "absent" : "given");
    if (needed) kernels::check_vector(t, count, dtype_, name);
  };
  check(state_.m, config_.first_moments(), "m");
  check(state_.v, config_.second_moments(), "v");
  check(state_.ema, config_.ema > 0, "ema");
  LONGSTRIDE_CHECK(state_.factors.given() == (config_.kind == OptimizerKind::adafactor), "the factors");
  LONGSTRIDE_CHECK(state_.tensor_squares.count() == std::ssize(tensors_), "{} sums for {} tensors",
                   state_.tensor_squares.count(), tensors_.size());
  kernels::check_vector(state_.scalars, static_cast<std::int64_t>(scalars_bytes), Dtype::u8, "scalars");
  for (const Updated& part : updated_)
    LONGSTRIDE_CHECK(config_.kind != OptimizerKind::adafactor || part.at == part.range.begin,
                     "Adafactor cannot update part of the weights");
}

void Optimizer::divide(const Updated& all, const std::vector<HiddenMatrix>& orthogonalised) {
  if (config_.kind == OptimizerKind::adafactor) return;
  if (!tensors_.empty()) return divide_by_tensor(all);
  std::int64_t begin = all.range.begin;
  const std::int64_t end = all.range.end(), to_state = all.at - begin;
  const auto elementwise = [&](std::int64_t until) {
    if (until > begin) elementwise_.push_back({{begin, until - begin, all.range.decays}, to_state + begin});
  };
  for (const HiddenMatrix& matrix : orthogonalised) {
    if (matrix.begin < begin || matrix.begin + matrix.count() > end) continue;
    elementwise(matrix.begin);
    add_matrix(by_muon_, matrix, to_state + matrix.begin);
    begin = std::min(end, matrix.begin + matrix.padded_count);
  }
  elementwise(end);
}

void Optimizer::divide_by_tensor(const Updated& all) {
  for (std::size_t i = 0; i < tensors_.size(); ++i) {
    const FlatRange part = common(all.range, tensors_[i]);
    if (part.count > 0)
      elementwise_.push_back({part, all.at + part.begin - all.range.begin, static_cast<std::int64_t>(i)});
  }
}

void Optimizer::start(Context& ctx, const Tensor& weights) {
  for (const Tensor& moments : {state_.m, state_.v, state_.factors})
    if (moments.given()) ops::fill_zero(ctx, moments);
  resume(ctx, config_.dynamic_loss_scale ? kernels::LossScale::first : 1.0f, 0, 0);
  if (config_.ema == 0) return;
  for (const Updated& part : updated_) ops::copy(ctx, part.range.of(weights), part.state_of(state_.ema));
}

void Optimizer::resume(Context& ctx, float loss_scale, std::int64_t good_steps, std::int64_t skipped) {
  ops::run(ctx,
           kernels::StartScalarsArgs{state_.scalars.as<kernels::OptimizerScalars>(), loss_scale, good_steps, skipped});
}

void Optimizer::set_peak(double lr) {
  config_.lr = lr;
  check_config(config_);
}

Tensor Optimizer::sum_of_squares() const {
  static_assert(offsetof(kernels::OptimizerScalars, sum_of_squares) == 0);
  return Tensor(state_.scalars.data(), Dtype::f64, {1});
}

void Optimizer::measure(Context& ctx, const Tensor& gradient, const std::vector<FlatRange>& ranges) {
  ops::fill_zero(ctx, sum_of_squares());
  for (const FlatRange& range : ranges) ops::sum_of_squares(ctx, range.of(gradient), sum_of_squares());
  if (tensors_.empty()) return;
  ops::fill_zero(ctx, state_.tensor_squares);
  for (const FlatRange& range : ranges)
    for (std::int64_t i = 0; i < std::ssize(tensors_); ++i)
      if (const FlatRange part = common(range, tensors_[static_cast<std::size_t>(i)]); part.count > 0)
        ops::sum_of_squares(ctx, part.of(gradient), state_.tensor_squares.slice(0, i, i + 1));
}

void Optimizer::step_scalars(Context& ctx) {
  LONGSTRIDE_CHECK(ctx.step != nullptr, "the optimizer needs the step");
  kernels::OptimizerScalarsArgs args;
  args.scalars = state_.scalars.as<kernels::OptimizerScalars>();
  args.step = ctx.step;
  args.schedule = {config_.lr,       config_.warmup,      config_.steps,     config_.schedule,
                   config_.lr_floor, config_.decay_steps, config_.decay_from};
  args.clip = config_.clip;
  args.dynamic_loss_scale = config_.dynamic_loss_scale;
  ops::run(ctx, args);
}

void Optimizer::update(Context& ctx, const Tensor& weights, const Tensor& gradient, const Tensor& low_precision) {
  kernels::check_vector(weights, weights.count(), dtype_, "weights");
  kernels::check_vector(gradient, weights.count(), dtype_, "gradient");
  if (low_precision.given()) {
    LONGSTRIDE_CHECK(ctx.device == Device::cuda && bytes_of(low_precision.dtype()) == 2, "low_precision is {}",
                     kernels::name_of(low_precision.dtype()));
    kernels::check_vector(low_precision, weights.count(), low_precision.dtype(), "low_precision");
  }
  const FlatTensors flat{weights, gradient, low_precision};
  if (!ctx.planning()) {
    step_scalars(ctx);
    for (const Updated& part : elementwise_)
      config_.kind == OptimizerKind::adagrad ? adagrad(ctx, part, flat) : adam(ctx, part, flat);
  }
  for (const MatrixGroup& group : by_muon_)
    muon(ctx, group, {weights, gradient, state_.m, low_precision}, config_.weight_decay, scalars());
  for (const FactoredGroup& group : factored_)
    adafactor(ctx, group, {weights, gradient, state_.factors, state_.m, low_precision},
              {config_.epsilon, config_.decay_rate, config_.clip_threshold, config_.beta1, config_.weight_decay,
               config_.scale_parameter},
              scalars());
  if (ctx.planning()) return;
  limit(ctx, flat);
  if (config_.ema == 0) return;
  for (const Updated& part : updated_)
    ops::run(ctx,
             kernels::AverageArgs{part.range.of(weights), part.state_of(state_.ema), config_.ema, scalars(), ctx.step});
}

// Before the running average, which so stays within the limits as well.
void Optimizer::limit(Context& ctx, const FlatTensors& flat) const {
  for (const LimitedRange& part : limited_)
    ops::run(ctx,
             kernels::ClampArgs{.x = part.range.of(flat.weights),
                                .rounded = flat.low_precision.given() ? part.range.of(flat.low_precision) : Tensor{},
                                .low = part.limits.low,
                                .high = part.limits.high});
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

void Optimizer::adagrad(Context& ctx, const Updated& part, const FlatTensors& flat) const {
  kernels::AdagradArgs args;
  args.weights = part.range.of(flat.weights);
  args.gradient = part.range.of(flat.gradient);
  args.sum = part.state_of(state_.v);
  if (flat.low_precision.given()) args.low_precision = part.range.of(flat.low_precision);
  if (part.tensor >= 0) args.tensor_squares = state_.tensor_squares.slice(0, part.tensor, part.tensor + 1);
  args.tensor_clip = config_.tensor_clip;
  args.epsilon = config_.epsilon;
  args.weight_decay = part.range.decays ? config_.weight_decay : 0;
  args.scalars = scalars();
  ops::run(ctx, args);
}

}  // namespace longstride
