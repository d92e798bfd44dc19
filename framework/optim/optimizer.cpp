#include "framework/optim/optimizer.h"

#include <algorithm>
#include <string_view>
#include <utility>

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

Tensor slice_of(const Tensor& flat, std::int64_t begin, std::int64_t count) {
  return flat.slice(0, begin, begin + count);
}

}  // namespace

Optimizer::Bytes Optimizer::state_bytes(const Config& config, std::int64_t count, Dtype dtype) {
  const std::size_t flat = static_cast<std::size_t>(count) * bytes_of(dtype);
  return {flat, flat, config.ema > 0 ? flat : 0, scalars_bytes};
}

Optimizer::Optimizer(const Config& config, const State& state, std::int64_t decayed)
    : Optimizer(config, state,
                std::vector<Piece>{{0, decayed, true},
                                   {decayed, std::max<std::int64_t>(state.m.count() - decayed, 0), false}}) {}

Optimizer::Optimizer(const Config& config, const State& state, std::vector<Piece> pieces)
    : config_(config), state_(state), pieces_(std::move(pieces)) {
  check_config(config);
  LONGSTRIDE_CHECK(ops::computes(state.m.dtype()), "m is {}", kernels::name_of(state.m.dtype()));
  ops::check_vector(state.v, state.m.count(), state.m.dtype(), "v");
  if (config.ema > 0) ops::check_vector(state.ema, state.m.count(), state.m.dtype(), "ema");
  ops::check_vector(state.scalars, static_cast<std::int64_t>(scalars_bytes), Dtype::u8, "scalars");
  std::int64_t count = 0;
  for (const Piece& piece : pieces_) count += piece.count;
  LONGSTRIDE_CHECK(count == state.m.count(), "state of {} elements for pieces of {}", state.m.count(), count);
}

void Optimizer::start(Context& ctx, const Tensor& weights) {
  ops::fill_zero(ctx, state_.m);
  ops::fill_zero(ctx, state_.v);
  resume(ctx, config_.dynamic_loss_scale ? kernels::LossScale::first : 1.0f, 0);
  if (config_.ema == 0) return;
  for_each_piece([&](const Piece& piece, std::int64_t at) {
    ops::copy(ctx, slice_of(weights, piece.begin, piece.count), slice_of(state_.ema, at, piece.count));
  });
}

void Optimizer::resume(Context& ctx, float loss_scale, std::int64_t good_steps) {
  if (ctx.planning()) return;
  ops::launch(ctx, kernels::cpu::start_scalars, kernels::cuda::start_scalars,
              {state_.scalars.as<kernels::OptimizerScalars>(), loss_scale, good_steps});
}

Tensor Optimizer::sum_of_squares() const {
  static_assert(offsetof(kernels::OptimizerScalars, sum_of_squares) == 0);
  return Tensor(state_.scalars.data(), Dtype::f64, {1});
}

void Optimizer::measure(Context& ctx, const Tensor& gradient, const std::vector<Piece>& pieces) {
  ops::fill_zero(ctx, sum_of_squares());
  for (const Piece& piece : pieces)
    ops::sum_of_squares(ctx, slice_of(gradient, piece.begin, piece.count), sum_of_squares());
}

void Optimizer::step(Context& ctx, const Tensor& weights, const Tensor& gradient, const Tensor& low) {
  measure(ctx, gradient, {{0, gradient.count(), false}});
  update(ctx, weights, gradient, low);
}

void Optimizer::update(Context& ctx, const Tensor& weights, const Tensor& gradient, const Tensor& low) {
  ops::check_vector(weights, weights.count(), state_.m.dtype(), "weights");
  ops::check_vector(gradient, weights.count(), state_.m.dtype(), "gradient");
  if (low.given()) {
    LONGSTRIDE_CHECK(ctx.device == Device::cuda && bytes_of(low.dtype()) == 2, "low is {}",
                     kernels::name_of(low.dtype()));
    ops::check_vector(low, weights.count(), low.dtype(), "low");
  }
  if (ctx.planning()) return;
  LONGSTRIDE_CHECK(ctx.step != nullptr, "the optimizer needs the step");

  auto* scalars = state_.scalars.as<kernels::OptimizerScalars>();
  ops::launch(ctx, kernels::cpu::optimizer_scalars, kernels::cuda::optimizer_scalars,
              {scalars, ctx.step, schedule(), config_.clip, config_.dynamic_loss_scale});
  kernels::AdamArgs args;
  args.beta1 = config_.beta1;
  args.beta2 = config_.beta2;
  args.epsilon = config_.epsilon;
  args.weight_decay = config_.weight_decay;
  args.scalars = scalars;
  args.step = ctx.step;
  for_each_piece([&](const Piece& piece, std::int64_t at) {
    if (piece.count == 0) return;
    const auto flat = [&](const Tensor& t) { return slice_of(t, piece.begin, piece.count).view(); };
    args.weights = flat(weights);
    args.gradient = flat(gradient);
    if (low.given()) args.low = flat(low);
    args.m = slice_of(state_.m, at, piece.count).view();
    args.v = slice_of(state_.v, at, piece.count).view();
    args.decayed = piece.decays ? piece.count : 0;
    ops::launch(ctx, kernels::cpu::adam, kernels::cuda::adam, args);
    if (config_.ema > 0)
      ops::launch(ctx, kernels::cpu::average, kernels::cuda::average,
                  {args.weights, slice_of(state_.ema, at, piece.count).view(), config_.ema, scalars});
  });
}

}  // namespace longstride
