#include "framework/optim/optimizer.h"

#include <string_view>

#include "framework/ops/basic.h"
#include "framework/ops/dispatch.h"

namespace longstride {
namespace {

void check_config(const Optimizer::Config& c) {
  const auto require = [](bool holds, std::string_view name, double value, std::string_view allowed) {
    if (!holds) throw user_error("train.{} is {}, but must be {}", name, value, allowed);
  };
  require(c.lr > 0, "lr", c.lr, "positive");
  require(c.steps > 0, "steps", static_cast<double>(c.steps), "positive");
  require(c.warmup >= 0, "warmup", static_cast<double>(c.warmup), "0 or more steps");
  require(c.beta1 >= 0 && c.beta1 < 1, "beta1", c.beta1, "in [0, 1)");
  require(c.beta2 >= 0 && c.beta2 < 1, "beta2", c.beta2, "in [0, 1)");
  require(c.epsilon > 0, "epsilon", c.epsilon, "positive");
  require(c.weight_decay >= 0, "weight_decay", c.weight_decay, "0 or more");
  require(c.clip >= 0, "clip", c.clip, "0 (no clipping) or positive");
  require(c.ema >= 0 && c.ema < 1, "ema", c.ema, "in [0, 1)");
}

}  // namespace

Optimizer::Bytes Optimizer::state_bytes(const Config& config, std::int64_t count, Dtype dtype) {
  const std::size_t flat = static_cast<std::size_t>(count) * bytes_of(dtype);
  return {flat, flat, config.ema > 0 ? flat : 0, scalars_bytes};
}

Optimizer::Optimizer(const Config& config, const State& state, std::int64_t decayed)
    : config_(config), state_(state), decayed_(decayed) {
  check_config(config);
  LONGSTRIDE_CHECK(ops::computes(state.m.dtype()), "m is {}", kernels::name_of(state.m.dtype()));
  ops::check_vector(state.v, state.m.count(), state.m.dtype(), "v");
  if (config.ema > 0) ops::check_vector(state.ema, state.m.count(), state.m.dtype(), "ema");
  ops::check_vector(state.scalars, static_cast<std::int64_t>(scalars_bytes), Dtype::u8, "scalars");
  LONGSTRIDE_CHECK(0 <= decayed && decayed <= state.m.count(), "{} of {} elements decay", decayed, state.m.count());
}

void Optimizer::start(Context& ctx, const Tensor& weights) {
  ops::fill_zero(ctx, state_.m);
  ops::fill_zero(ctx, state_.v);
  resume(ctx, config_.dynamic_loss_scale ? kernels::LossScale::first : 1.0f, 0);
  if (config_.ema > 0) ops::copy(ctx, weights, state_.ema);
}

void Optimizer::resume(Context& ctx, float loss_scale, std::int64_t good_steps) {
  if (ctx.planning()) return;
  ops::launch(ctx, kernels::cpu::start_scalars, kernels::cuda::start_scalars,
              {state_.scalars.as<kernels::OptimizerScalars>(), loss_scale, good_steps});
}

void Optimizer::step(Context& ctx, const Tensor& weights, const Tensor& gradient, const Tensor& low) {
  ops::check_vector(weights, state_.m.count(), state_.m.dtype(), "weights");
  ops::check_vector(gradient, state_.m.count(), state_.m.dtype(), "gradient");
  if (low.given()) {
    LONGSTRIDE_CHECK(ctx.device == Device::cuda && bytes_of(low.dtype()) == 2, "low is {}",
                     kernels::name_of(low.dtype()));
    ops::check_vector(low, weights.count(), low.dtype(), "low");
  }
  static_assert(offsetof(kernels::OptimizerScalars, sum_of_squares) == 0);
  const Tensor sum_of_squares(state_.scalars.data(), Dtype::f64, {1});
  ops::fill_zero(ctx, sum_of_squares);
  ops::sum_of_squares(ctx, gradient, sum_of_squares);
  if (ctx.planning()) return;
  LONGSTRIDE_CHECK(ctx.step != nullptr, "the optimizer needs the step");

  auto* scalars = state_.scalars.as<kernels::OptimizerScalars>();
  ops::launch(ctx, kernels::cpu::optimizer_scalars, kernels::cuda::optimizer_scalars,
              {scalars, ctx.step, schedule(), config_.clip, config_.dynamic_loss_scale});
  kernels::AdamArgs args;
  args.weights = weights.view();
  args.gradient = gradient.view();
  args.m = state_.m.view();
  args.v = state_.v.view();
  args.low = low.view();
  args.decayed = decayed_;
  args.beta1 = config_.beta1;
  args.beta2 = config_.beta2;
  args.epsilon = config_.epsilon;
  args.weight_decay = config_.weight_decay;
  args.scalars = scalars;
  args.step = ctx.step;
  ops::launch(ctx, kernels::cpu::adam, kernels::cuda::adam, args);
  if (config_.ema > 0)
    ops::launch(ctx, kernels::cpu::average, kernels::cuda::average,
                {weights.view(), state_.ema.view(), config_.ema, scalars});
}

}  // namespace longstride
