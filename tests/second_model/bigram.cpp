#include "tests/second_model/bigram.h"

#include <cmath>

#include "framework/layers/feed_forward_branch.h"
#include "framework/ops/cross_entropy.h"
#include "framework/ops/linear.h"

namespace longstride {

Bigram::Bigram(const BigramConfig& config) : config_(config) {
  const double deviation = 1 / std::sqrt(static_cast<double>(config.width));
  const TableForm tokens = {vocabulary(), config.width, deviation};
  embedding_ =
      std::make_unique<EmbeddingLayer>(parameters_, "embedding", tokens, std::vector<PositionIndex>{}, deviation);
  std::vector<ResidualStep> steps;
  for (std::int64_t layer = 0; layer < config.layers; ++layer) {
    const std::string name = "layers." + std::to_string(layer);
    const FeedForwardBranchConfig sizes = {config.width, config.inner_width(), deviation, deviation};
    const Dropout after = {static_cast<float>(config.dropout), static_cast<std::uint32_t>(layer)};
    auto norm = std::make_shared<LayerNorm>(parameters_, name + ".norm", config.width);
    auto branch = std::make_shared<FeedForwardBranch>(parameters_, name + ".feed_forward", sizes);
    steps.push_back({std::move(norm), std::move(branch), after});
  }
  auto final_norm = std::make_shared<LayerNorm>(parameters_, "final_norm", config.width);
  const RecomputedBranches recomputed = {.branches = config.recompute ? 1 : 0};
  stream_ = std::make_unique<ResidualStream>(std::move(steps), std::move(final_norm), recomputed);
  output_ = &parameters_.add("output.weight", {vocabulary(), config.width}, {});
  parameters_.lay_out();
}

void Bigram::losses(Context& ctx, const Batch& batch, const Tensor& losses) const {
  Context quiet = ctx;
  quiet.step = nullptr;  // no dropout
  Scratch scratch(quiet);
  const Tensor h = scratch.tensor({losses.size(0), losses.size(1), config_.width}, ctx.residual_dtype());
  embedding_->forward(quiet, batch, h);
  const Tensor normed = scratch.tensor(h.shape(), ctx.compute);
  stream_->forward(quiet, h, normed, nullptr);
  ops::cross_entropy(quiet, {.hidden = normed,
                             .weight = output_->value,
                             .targets = batch.predicted(),
                             .losses = losses,
                             .weights = batch.weights});
}

void Bigram::loss_and_gradients(Context& ctx, const Batch& batch, double scale, const Tensor& losses) const {
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
                             .dweight = output_->gradient,
                             .weights = batch.weights});
  }
  if (ctx.watcher != nullptr) ctx.watcher->complete_from(*output_);
  const Tensor dh = scratch.tensor(shape, ctx.residual_dtype());
  stream_->backward(ctx, d, dh, tape);
  embedding_->backward(ctx, dh, batch);
  tape.close_frame();
}

SequenceCost Bigram::cost(std::int64_t positions) const {
  return {6.0 * static_cast<double>(parameters_.count() * positions), 0, 0};
}

namespace {

struct BigramState : DecodingState {
  explicit BigramState(Context& ctx) : scratch(ctx) {}
  std::int64_t bytes() const override { return 0; }
  Scratch scratch;
  ResidualStream::Caches caches;
};

}  // namespace

std::unique_ptr<DecodingState> Bigram::begin_decoding(Context& ctx, std::int64_t batch, std::int64_t positions) const {
  auto state = std::make_unique<BigramState>(ctx);
  state->caches = stream_->make_caches(ctx, state->scratch, batch, positions);
  return state;
}

void Bigram::decode(Context& ctx, DecodingState& state, std::int64_t position, const Tensor& previous,
                    const Tensor& logits) const {
  Context quiet = ctx;
  quiet.step = nullptr;
  Scratch scratch(quiet);
  const Tensor h = scratch.tensor({previous.size(0), 1, config_.width}, ctx.residual_dtype());
  embedding_->decode(quiet, previous, h, position);
  const Tensor normed = scratch.tensor(h.shape(), ctx.compute);
  stream_->decode(quiet, h, normed, static_cast<BigramState&>(state).caches, position);
  ops::linear(quiet, normed.rows(), output_->value, Tensor{}, logits);
}

}  // namespace longstride
