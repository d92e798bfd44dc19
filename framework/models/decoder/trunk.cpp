#include "framework/models/decoder/trunk.h"

#include <algorithm>
#include <cmath>

#include "framework/core/errors.h"
#include "framework/ops/linear.h"

namespace longstride {
namespace {

std::vector<PositionIndex> position_tables(const DecoderConfig& c) {
  if (c.positions == Positions::none) return {};
  if (c.positions == Positions::data) {
    const Geometry& g = c.geometry;
    return {{g.columns * g.channels, g.rows}, {g.channels, g.columns}, {1, g.channels}};
  }
  const std::int64_t stride = c.attention.stride;
  return {{stride, (c.context + stride - 1) / stride}, {1, stride}};
}

// A block is an attention branch and a feed-forward branch.
RecomputedBranches recomputed_branches(Recompute recompute) {
  switch (recompute) {
    case Recompute::selective:
      return {.branches = 2, .keep_results = true};
    case Recompute::block:
      return {.branches = 2};
    case Recompute::attention_and_feed_forward:
      return {.branches = 1};
    default:
      return {};
  }
}

}  // namespace

DecoderTrunk::DecoderTrunk(const DecoderConfig& config, ParameterSet& parameters, const MakeAttention& make_attention)
    : config_(config),
      embedding_dropout_{static_cast<float>(config.embedding_dropout), dropout_ids::embedding},
      output_dropout_{static_cast<float>(config.output_dropout), dropout_ids::output} {
  const std::vector<PositionIndex> tables = position_tables(config);
  const double width = static_cast<double>(config.width);
  embedding_ =
      std::make_unique<EmbeddingLayer>(parameters, "embedding", config.vocabulary, config.width, tables,
                                       config.deviation_or(config.init_deviations.embedding, width),
                                       config.deviation(width * std::max(1.0, static_cast<double>(tables.size()))),
                                       config.embedding_scale ? std::sqrt(width) : 1.0);
  for (std::int64_t layer = 0; layer < config.layers; ++layer) add_block(layer, parameters, make_attention);
  if (config.norm == NormOrder::pre) final_norm_ = std::make_shared<LayerNorm>(parameters, "final_norm", config.width);
  output_ = config.tied_output
                ? &embedding_->token()
                : &parameters.add("output.weight", {config.vocabulary, config.width}, {config.init_deviation, 0});
  if (config.output_bias) output_bias_ = &parameters.add("output.bias", {config.vocabulary}, {});
  parameters.lay_out();

  std::vector<ResidualStep> steps;
  for (const Block& block : blocks_) {
    const auto id = static_cast<std::uint32_t>(steps.size());
    const auto dropout = static_cast<float>(config.dropout);
    steps.push_back({block.attention_norm, block.attention, {dropout, id}});
    steps.push_back({block.feed_forward_norm, block.feed_forward, {dropout, id + 1}});
  }
  stream_ = std::make_unique<ResidualStream>(std::move(steps), final_norm_, recomputed_branches(config.recompute));
}

void DecoderTrunk::add_block(std::int64_t layer, ParameterSet& parameters, const MakeAttention& make_attention) {
  const std::string name = "layers." + std::to_string(layer);
  FeedForwardBranchConfig feed_forward;
  feed_forward.width = config_.width;
  feed_forward.inner_width = config_.inner_width();
  feed_forward.activation = config_.activation;
  feed_forward.biased = config_.feed_forward_bias;
  feed_forward.dropout = {static_cast<float>(config_.inner_dropout),
                          dropout_ids::within_branches + static_cast<std::uint32_t>(2 * layer + 1)};
  feed_forward.inner_deviation = config_.deviation(static_cast<double>(config_.width));
  feed_forward.output_deviation = config_.shrink() * config_.deviation(static_cast<double>(config_.inner_width()));

  Block block;
  block.attention_norm = std::make_shared<LayerNorm>(parameters, name + ".attention_norm", config_.width);
  block.attention = make_attention(layer, name + ".attention");
  block.feed_forward_norm = std::make_shared<LayerNorm>(parameters, name + ".feed_forward_norm", config_.width);
  block.feed_forward = std::make_shared<FeedForwardBranch>(parameters, name + ".feed_forward", feed_forward);
  blocks_.push_back(std::move(block));
}

DecoderTrunk::RankSpan DecoderTrunk::span_of(const Context& ctx, const Batch& batch, const Tensor& losses) const {
  const int ranks = ctx.sequence_ranks();
  const Tensor& tokens = batch.tokens;
  LONGSTRIDE_CHECK(tokens.rank() == 2 && tokens.size(1) <= config_.context && !batch.lengths.given() &&
                       losses.shape() == Shape({tokens.size(0), tokens.size(1) / ranks}) &&
                       (ranks == 1 || (tokens.size(0) == 1 && tokens.size(1) % ranks == 0)),
                   "tokens {} and losses {} for a context of {} on {} ranks", tokens.shape().text(),
                   losses.shape().text(), config_.context, ranks);
  const std::int64_t run = tokens.size(1) / ranks, first = ctx.sequence_rank() * run;
  return {first, batch.predicted().slice(1, first, first + run),
          batch.weights.given() ? batch.weights.slice(1, first, first + run) : Tensor{}};
}

ops::CrossEntropy DecoderTrunk::head(const Tensor& hidden, const RankSpan& here, const Tensor& losses) const {
  return {.hidden = hidden,
          .weight = output_->value,
          .targets = here.targets,
          .losses = losses,
          .bias = output_bias_ != nullptr ? output_bias_->master : Tensor{},
          .weights = here.weights};
}

void DecoderTrunk::losses(Context& ctx, const Batch& batch, const Tensor& losses) const {
  const RankSpan here = span_of(ctx, batch, losses);
  Context quiet = ctx;
  quiet.step = nullptr;  // no dropout
  Scratch scratch(quiet);
  const Tensor h = scratch.tensor({losses.size(0), losses.size(1), config_.width}, ctx.residual_dtype());
  embedding_->forward(quiet, batch, h, here.first);
  const Tensor normed = scratch.tensor(h.shape(), ctx.compute);
  stream_->forward(quiet, h, normed, nullptr);
  ops::cross_entropy(quiet, head(normed, here, losses));
}

void DecoderTrunk::observe_attention(
    Context& ctx, const Batch& batch,
    const std::function<void(Context& ctx, std::int64_t layer, const Tensor& normed)>& see) const {
  Context quiet = ctx;
  quiet.step = nullptr;
  Scratch scratch(quiet);
  const Tensor h = scratch.tensor({batch.rows(), batch.tokens.size(1), config_.width}, ctx.residual_dtype());
  const Tensor normed = scratch.tensor(h.shape(), ctx.compute);
  embedding_->forward(quiet, batch, h);
  stream_->observe(quiet, h, normed, [&](int k, const Tensor& in) {
    if (k % 2 == 0) see(quiet, k / 2, in);  // odd: a feed-forward branch
  });
}

void DecoderTrunk::loss_and_gradients(Context& ctx, const Batch& batch, double scale, const Tensor& losses) const {
  LONGSTRIDE_CHECK(config_.recompute != Recompute::automatic, "a step whose recompute has not been chosen");
  const RankSpan here = span_of(ctx, batch, losses);
  const Shape shape = {losses.size(0), losses.size(1), config_.width};
  Tape tape(*ctx.arena);
  tape.open_frame();
  const Tensor h = tape.tensor(shape, ctx.residual_dtype());
  embedding_->forward(ctx, batch, h, here.first);
  embedding_dropout_.apply(ctx, h);

  Scratch scratch(ctx);
  const Tensor d = scratch.tensor(shape, ctx.compute);
  {
    Scratch inner(ctx);
    const Tensor normed = inner.tensor(shape, ctx.compute);
    stream_->forward(ctx, h, normed, &tape);
    output_dropout_.apply(ctx, normed);
    ops::CrossEntropy args = head(normed, here, losses);
    args.scale = scale;
    args.dhidden = d;
    args.dweight = output_->gradient;
    if (output_bias_ != nullptr) args.dbias = output_bias_->gradient;
    ops::cross_entropy(ctx, args);
  }
  // The token table's gradient is final after the embedding's, with the rest of the first matrices.
  if (ctx.watcher != nullptr && !config_.tied_output) ctx.watcher->complete_from(*output_);
  output_dropout_.apply(ctx, d);
  const Tensor dh = scratch.tensor(shape, ctx.residual_dtype());
  stream_->backward(ctx, d, dh, tape);
  embedding_dropout_.apply(ctx, dh);
  embedding_->backward(ctx, dh, batch, here.first);
  tape.close_frame();
  LONGSTRIDE_CHECK(tape.empty(), "the tape is not empty after a step");
}

void DecoderTrunk::decode(Context& ctx, const ResidualStream::Caches& caches, std::int64_t position,
                          const Tensor& previous, const Tensor& logits) const {
  Context quiet = ctx;
  quiet.step = nullptr;
  Scratch scratch(quiet);
  const Tensor h = scratch.tensor({previous.size(0), 1, config_.width}, ctx.residual_dtype());
  embedding_->decode(quiet, previous, h, position);
  const Tensor normed = scratch.tensor(h.shape(), ctx.compute);
  stream_->decode(quiet, h, normed, caches, position);
  ops::linear(quiet, normed.rows(), output_->value, output_bias_ != nullptr ? output_bias_->master : Tensor{}, logits);
}

}  // namespace longstride
