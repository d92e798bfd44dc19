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

Optimizer::Optimizer(const Config& config, const State& state, std::int64_t decayed,
                     const std::vector<HiddenMatrix>& orthogonalised)
    : Optimizer(config, state,
                std::vector<Piece>{{0, decayed, true},
                                   {decayed, std::max<std::int64_t>(state.m.count() - decayed, 0), false}},
                orthogonalised) {}

Optimizer::Optimizer(const Config& config, const State& state, std::vector<Piece> pieces,
                     const std::vector<HiddenMatrix>& orthogonalised)
    : config_(config), state_(state) {
  check_config(config);
  LONGSTRIDE_CHECK(ops::computes(state.m.dtype()), "m is {}", kernels::name_of(state.m.dtype()));
  ops::check_vector(state.v, state.m.count(), state.m.dtype(), "v");
  if (config.ema > 0) ops::check_vector(state.ema, state.m.count(), state.m.dtype(), "ema");
  ops::check_vector(state.scalars, static_cast<std::int64_t>(scalars_bytes), Dtype::u8, "scalars");
  std::int64_t count = 0;
  for (const Piece& piece : pieces) {
    if (piece.count > 0) divide(parts_.emplace_back(Part{piece, count}), orthogonalised);
    count += piece.count;
  }
  LONGSTRIDE_CHECK(count == state.m.count(), "state of {} elements for pieces of {}", state.m.count(), count);
  std::int64_t matrices = 0;
  for (const MatrixGroup& group : by_muon_) matrices += group.matrices;
  LONGSTRIDE_CHECK(matrices == std::ssize(orthogonalised), "{} of {} matrices lie within a piece", matrices,
                   orthogonalised.size());
}

void Optimizer::divide(const Part& part, const std::vector<HiddenMatrix>& orthogonalised) {
  std::int64_t begin = part.piece.begin;
  const std::int64_t end = begin + part.piece.count;
  const auto by_adam = [&](std::int64_t until) {
    if (until > begin)
      by_adam_.push_back({{begin, until - begin, part.piece.decays}, part.at + begin - part.piece.begin});
  };
  for (const HiddenMatrix& matrix : orthogonalised) {
    if (matrix.begin < begin || matrix.begin + matrix.count() > end) continue;
    by_adam(matrix.begin);
    add_matrix(by_muon_, matrix, part.at + matrix.begin - part.piece.begin);
    begin = std::min(end, matrix.begin + matrix.padded_count);
  }
  by_adam(end);
}

void Optimizer::start(Context& ctx, const Tensor& weights) {
  ops::fill_zero(ctx, state_.m);
  ops::fill_zero(ctx, state_.v);
  resume(ctx, config_.dynamic_loss_scale ? kernels::LossScale::first : 1.0f, 0);
  if (config_.ema == 0) return;
  for (const auto& [piece, at] : parts_)
    ops::copy(ctx, slice_of(weights, piece.begin, piece.count), slice_of(state_.ema, at, piece.count));
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
  const Flat flat{weights, gradient, low};
  if (!ctx.planning()) {
    LONGSTRIDE_CHECK(ctx.step != nullptr, "the optimizer needs the step");
    ops::launch(ctx, kernels::cpu::optimizer_scalars, kernels::cuda::optimizer_scalars,
                {state_.scalars.as<kernels::OptimizerScalars>(), ctx.step, schedule(), config_.clip,
                 config_.dynamic_loss_scale});
    for (const Part& part : by_adam_) adam(ctx, part, flat);
  }
  for (const MatrixGroup& group : by_muon_)
    muon(ctx, group, {weights, gradient, state_.m, low}, config_.weight_decay, scalars());
  if (ctx.planning() || config_.ema == 0) return;
  for (const Part& part : parts_) average(ctx, part, weights);
}

void Optimizer::adam(Context& ctx, const Part& part, const Flat& flat) const {
  const auto here = [&](const Tensor& t) { return slice_of(t, part.piece.begin, part.piece.count).view(); };
  kernels::AdamArgs args;
  args.weights = here(flat.weights);
  args.gradient = here(flat.gradient);
  if (flat.low.given()) args.low = here(flat.low);
  args.m = slice_of(state_.m, part.at, part.piece.count).view();
  args.v = slice_of(state_.v, part.at, part.piece.count).view();
  args.decayed = part.piece.decays ? part.piece.count : 0;
  args.beta1 = config_.beta1;
  args.beta2 = config_.beta2;
  args.epsilon = config_.epsilon;
  args.weight_decay = config_.weight_decay;
  args.scalars = scalars();
  args.step = ctx.step;
  ops::launch(ctx, kernels::cpu::adam, kernels::cuda::adam, args);
}

void Optimizer::average(Context& ctx, const Part& part, const Tensor& weights) const {
  ops::launch(ctx, kernels::cpu::average, kernels::cuda::average,
              {slice_of(weights, part.piece.begin, part.piece.count).view(),
               slice_of(state_.ema, part.at, part.piece.count).view(), config_.ema, scalars()});
}

}  // namespace longstride
