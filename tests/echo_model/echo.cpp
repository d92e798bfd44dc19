#include "tests/echo_model/echo.h"

#include <fmt/format.h>

#include <cmath>

#include "framework/models/registry.h"
#include "framework/ops/basic.h"
#include "framework/ops/cross_entropy.h"
#include "framework/ops/linear.h"
#include "kernels/copy_rows/copy_rows.h"

namespace longstride {
namespace {

constexpr Range delays{1, 1 << 20, false, false, "a positive number of positions"};

struct EchoState : DecodingState {
  explicit EchoState(Context& ctx) : scratch(ctx) {}
  std::int64_t bytes() const override { return 0; }
  Scratch scratch;
  ResidualStream::Caches caches;
};

// Every input so far, (batch, delay + positions, width), the first `delay` of them 0.
struct EchoCache : BranchCache {
  Tensor inputs;
};

void copy_positions(Context& ctx, const Tensor& from, const Tensor& to) {
  if (from.size(1) > 0) ops::run(ctx, kernels::CopyRowsArgs{from, to});
}

}  // namespace

std::unique_ptr<Model> EchoConfig::make_model() const { return std::make_unique<Echo>(*this); }

void EchoConfig::visit(SettingsVisitor& v) {
  v.field("layers", layers, Need::optional, ranges::layers);
  v.field("width", width, Need::required, ranges::width);
  v.field("delay", delay, Need::optional, delays);
  v.field("dropout", dropout, Need::optional, ranges::fraction);
  v.field("recompute", recompute, Need::optional);
}

double EchoConfig::activation_bytes() const { return static_cast<double>(3 * layers * width) * sizeof(float); }

std::string EchoConfig::summary() const { return fmt::format("{} layers, width {}, delay {}", layers, width, delay); }

[[maybe_unused]] const bool registered = register_model<EchoConfig>();

EchoBranch::EchoBranch(ParameterSet& parameters, StateSet& states, const std::string& name, const EchoConfig& config)
    : delay_(config.delay),
      linear_(parameters, name, config.width, config.width, 1 / std::sqrt(static_cast<double>(config.width))),
      memory_(states.add(name + ".memory", {config.delay, config.width}, StateType::compute)) {}

void EchoBranch::join(Context& ctx, const Tensor& normed, const Tensor& joined) const {
  copy_positions(ctx, ctx.state.now(memory_), joined.slice(1, 0, delay_));
  copy_positions(ctx, normed, joined.slice(1, delay_, joined.size(1)));
}

void EchoBranch::remember(Context& ctx, const Tensor& joined) const {
  copy_positions(ctx, joined.slice(1, joined.size(1) - delay_, joined.size(1)), ctx.state.next(memory_));
}

void EchoBranch::forward(Context& ctx, const Tensor& normed, const BranchOutput& out, Tape* tape) const {
  const std::int64_t batch = normed.size(0), seq = normed.size(1);
  Scratch scratch(ctx);
  const Tensor joined = scratch.tensor({batch, delay_ + seq, normed.size(2)}, normed.dtype(), tape);
  join(ctx, normed, joined);
  remember(ctx, joined);
  if (tape != nullptr) tape->push(joined);
  if (!out.given()) return;
  const Tensor to = out.place().to;
  for (std::int64_t r = 0; r < batch; ++r)
    linear_.apply(ctx, joined.slice(0, r, r + 1).slice(1, 0, seq), to.slice(0, r, r + 1));
}

void EchoBranch::backward(Context& ctx, const Tensor& dout, const Tensor& dnormed, Tape& tape) const {
  const Tensor joined = tape.pop();
  const std::int64_t seq = dout.size(1);
  Scratch scratch(ctx);
  const Tensor ddelayed = scratch.like(dnormed);
  for (std::int64_t r = 0; r < dout.size(0); ++r)
    linear_.gradients_but_bias(ctx, joined.slice(0, r, r + 1).slice(1, 0, seq), dout.slice(0, r, r + 1),
                               ddelayed.slice(0, r, r + 1));
  ops::fill_zero(ctx, dnormed);
  if (seq > delay_) copy_positions(ctx, ddelayed.slice(1, delay_, seq), dnormed.slice(1, 0, seq - delay_));
}

std::unique_ptr<BranchCache> EchoBranch::make_cache(Context& ctx, Scratch& memory, std::int64_t batch,
                                                    std::int64_t positions) const {
  auto cache = std::make_unique<EchoCache>();
  cache->inputs = memory.tensor({batch, delay_ + positions, linear_.in()}, ctx.compute);
  ops::fill_zero(ctx, cache->inputs);
  return cache;
}

// Only where the host says which position it is, which is the CPU.
void EchoBranch::decode(Context& ctx, const Tensor& normed, const Tensor& out, BranchCache* cache,
                        std::int64_t position) const {
  const Tensor& inputs = static_cast<const EchoCache*>(cache)->inputs;
  copy_positions(ctx, normed, inputs.slice(1, delay_ + position, delay_ + position + 1));
  for (std::int64_t r = 0; r < normed.size(0); ++r)
    linear_.apply(ctx, inputs.slice(0, r, r + 1).slice(1, position, position + 1), out.slice(0, r, r + 1));
}

Echo::Echo(const EchoConfig& config) : config_(config) {
  const double deviation = 1 / std::sqrt(static_cast<double>(config.width));
  embedding_ = std::make_unique<EmbeddingLayer>(parameters_, "embedding", vocabulary(), config.width,
                                                std::vector<PositionIndex>{}, deviation, deviation);
  std::vector<ResidualStep> steps;
  for (std::int64_t layer = 0; layer < config.layers; ++layer) {
    const std::string name = "layers." + std::to_string(layer);
    auto norm = std::make_shared<LayerNorm>(parameters_, name + ".norm", config.width);
    auto branch = std::make_shared<EchoBranch>(parameters_, states_, name + ".echo", config);
    const Dropout after = {static_cast<float>(config.dropout), static_cast<std::uint32_t>(layer)};
    steps.push_back({std::move(norm), std::move(branch), after});
  }
  auto final_norm = std::make_shared<LayerNorm>(parameters_, "final_norm", config.width);
  const RecomputedBranches recomputed = {.branches = config.recompute ? 1 : 0};
  stream_ = std::make_unique<ResidualStream>(std::move(steps), std::move(final_norm), recomputed);
  output_ = &parameters_.add("output.weight", {vocabulary(), config.width}, {});
  parameters_.lay_out();
}

void Echo::losses(Context& ctx, const Batch& batch, const Tensor& losses) const {
  Context quiet = ctx;
  quiet.step = nullptr;  // no dropout
  Scratch scratch(quiet);
  const Tensor h = scratch.tensor({losses.size(0), losses.size(1), config_.width}, ctx.residual_dtype());
  embedding_->forward(quiet, batch, h);
  const Tensor normed = scratch.tensor(h.shape(), ctx.compute);
  stream_->forward(quiet, h, normed, nullptr);
  ops::cross_entropy(quiet,
                     {.hidden = normed, .weight = output_->value, .targets = batch.predicted(), .losses = losses});
}

void Echo::loss_and_gradients(Context& ctx, const Batch& batch, double scale, const Tensor& losses) const {
  const Shape shape = {losses.size(0), losses.size(1), config_.width};
  Tape tape(*ctx.arena);
  tape.open_frame();
  const Tensor h = tape.tensor(shape, ctx.residual_dtype());
  embedding_->forward(ctx, batch, h);
  Scratch scratch(ctx);
  const Tensor d = scratch.tensor(shape, ctx.compute);
  {
    Scratch inner(ctx);
    const Tensor normed = inner.tensor(shape, ctx.compute);
    stream_->forward(ctx, h, normed, &tape);
    ops::cross_entropy(ctx, {.hidden = normed,
                             .weight = output_->value,
                             .targets = batch.predicted(),
                             .losses = losses,
                             .scale = scale,
                             .dhidden = d,
                             .dweight = output_->gradient});
  }
  if (ctx.watcher != nullptr) ctx.watcher->complete_from(*output_);
  const Tensor dh = scratch.tensor(shape, ctx.residual_dtype());
  stream_->backward(ctx, d, dh, tape);
  embedding_->backward(ctx, dh, batch);
  tape.close_frame();
}

SequenceCost Echo::cost(std::int64_t positions) const {
  return {6.0 * static_cast<double>(parameters_.count() * positions), 0, 0};
}

std::unique_ptr<DecodingState> Echo::begin_decoding(Context& ctx, std::int64_t batch, std::int64_t positions) const {
  auto state = std::make_unique<EchoState>(ctx);
  state->caches = stream_->make_caches(ctx, state->scratch, batch, positions);
  return state;
}

void Echo::decode(Context& ctx, DecodingState& state, std::int64_t position, const Tensor& previous,
                  const Tensor& logits) const {
  Context quiet = ctx;
  quiet.step = nullptr;
  Scratch scratch(quiet);
  const Tensor h = scratch.tensor({previous.size(0), 1, config_.width}, ctx.residual_dtype());
  embedding_->decode(quiet, previous, h, position);
  const Tensor normed = scratch.tensor(h.shape(), ctx.compute);
  stream_->decode(quiet, h, normed, static_cast<EchoState&>(state).caches, position);
  ops::linear(quiet, normed.rows(), output_->value, Tensor{}, logits);
}

}  // namespace longstride
