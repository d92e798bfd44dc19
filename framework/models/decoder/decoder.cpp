#include "framework/models/decoder/decoder.h"

#include <algorithm>
#include <cmath>

#include "framework/core/errors.h"

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

Decoder::Decoder(const DecoderConfig& config)
    : config_(config), plans_(std::make_shared<AttentionPlans>(config.attention, config.heads)) {
  const std::vector<PositionIndex> tables = position_tables(config);
  embedding_ = std::make_unique<EmbeddingLayer>(
      parameters_, "embedding", config.vocabulary, config.width, tables, deviation(static_cast<double>(config.width)),
      deviation(static_cast<double>(config.width) * std::max(1.0, static_cast<double>(tables.size()))),
      config.embedding_scale ? std::sqrt(static_cast<double>(config.width)) : 1.0);
  for (std::int64_t layer = 0; layer < config.layers; ++layer) add_block(layer);
  if (config.norm == NormOrder::pre) final_norm_ = std::make_shared<LayerNorm>(parameters_, "final_norm", config.width);
  output_ = config.tied_output
                ? &embedding_->token()
                : &parameters_.add("output.weight", {config.vocabulary, config.width}, {config.init_deviation, 0});
  if (config.output_bias) output_bias_ = &parameters_.add("output.bias", {config.vocabulary}, {});
  parameters_.lay_out();

  std::vector<ResidualStep> steps;
  for (const Block& block : blocks_) {
    const auto id = static_cast<std::uint32_t>(steps.size());
    const auto dropout = static_cast<float>(config.dropout);
    steps.push_back({block.attention_norm, block.attention, {dropout, id}});
    steps.push_back({block.feed_forward_norm, block.feed_forward, {dropout, id + 1}});
  }
  stream_ = std::make_unique<ResidualStream>(std::move(steps), final_norm_, recomputed_branches(config.recompute));
}

double Decoder::deviation(double fan_in) const {
  if (config_.init_deviation > 0) return config_.init_deviation;
  const double value = 0.125 / fan_in;
  return config_.init == InitReading::variance ? std::sqrt(value) : value;
}

void Decoder::add_block(std::int64_t layer) {
  const std::string name = "layers." + std::to_string(layer);
  // The two projections that write to the residual stream start smaller, by 1 / sqrt(2 N) (section 5.2).
  const double shrink = config_.init_deviation > 0 ? 1.0 : 1.0 / std::sqrt(2.0 * static_cast<double>(config_.layers));
  const double width = static_cast<double>(config_.width);

  AttentionBranchConfig attention;
  attention.width = config_.width;
  attention.heads = config_.heads;
  attention.key_size = config_.key_size();
  attention.value_size = config_.value_size();
  attention.weight_deviation = deviation(width);
  attention.output_deviation = shrink * deviation(width);
  attention.biased = config_.attention_bias;
  attention.transform = {config_.query_key_norm, config_.rotary_base};

  FeedForwardBranchConfig feed_forward;
  feed_forward.width = config_.width;
  feed_forward.inner_width = config_.inner_width();
  feed_forward.activation = config_.activation;
  feed_forward.biased = config_.feed_forward_bias;
  feed_forward.inner_deviation = deviation(width);
  feed_forward.output_deviation = shrink * deviation(static_cast<double>(config_.inner_width()));

  Block block;
  block.attention_norm = std::make_shared<LayerNorm>(parameters_, name + ".attention_norm", config_.width);
  block.attention = std::make_shared<AttentionBranch>(parameters_, name + ".attention", attention, plans_, layer);
  block.feed_forward_norm = std::make_shared<LayerNorm>(parameters_, name + ".feed_forward_norm", config_.width);
  block.feed_forward = std::make_shared<FeedForwardBranch>(parameters_, name + ".feed_forward", feed_forward);
  blocks_.push_back(std::move(block));
}

void Decoder::check_group(int ranks) const {
  if (config_.heads % ranks != 0)
    throw user_error("parallel.sequence_ranks is {}, which does not divide model.heads, {}; choose a divisor", ranks,
                     config_.heads);
  if (config_.context % ranks != 0)
    throw user_error("parallel.sequence_ranks is {}, which does not divide data.context, {}; choose a divisor", ranks,
                     config_.context);
}

Decoder::RankSpan Decoder::span_of(const Context& ctx, const Batch& batch, const Tensor& losses) const {
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

ops::CrossEntropy Decoder::head(const Tensor& hidden, const RankSpan& here, const Tensor& losses) const {
  return {.hidden = hidden,
          .weight = output_->value,
          .targets = here.targets,
          .losses = losses,
          .bias = output_bias_ != nullptr ? output_bias_->master : Tensor{},
          .weights = here.weights};
}

void Decoder::losses(Context& ctx, const Batch& batch, const Tensor& losses) const {
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

void Decoder::visit_attention(Context& ctx, const Tensor& tokens, const AttentionVisitor& visit) const {
  Context quiet = ctx;
  quiet.step = nullptr;
  Scratch scratch(quiet);
  const Tensor h = scratch.tensor({tokens.size(0), tokens.size(1), config_.width}, ctx.residual_dtype());
  const Tensor normed = scratch.tensor(h.shape(), ctx.compute);
  embedding_->forward(quiet, {tokens}, h);
  stream_->observe(quiet, h, normed, [&](int k, const Tensor& in) {
    if (k % 2 != 0) return;  // a feed-forward branch
    Scratch inner(quiet);
    const AttentionBranch::QkvHeads seen =
        blocks_[static_cast<std::size_t>(k / 2)].attention->project(quiet, in, 0, inner);
    if (!quiet.planning()) visit(k / 2, seen.q, seen.k);
  });
}

void Decoder::loss_and_gradients(Context& ctx, const Batch& batch, double scale, const Tensor& losses) const {
  LONGSTRIDE_CHECK(config_.recompute != Recompute::automatic, "a step whose recompute has not been chosen");
  const RankSpan here = span_of(ctx, batch, losses);
  const Shape shape = {losses.size(0), losses.size(1), config_.width};
  Tape tape(*ctx.arena);
  tape.open_frame();
  const Tensor h = tape.tensor(shape, ctx.residual_dtype());
  embedding_->forward(ctx, batch, h, here.first);

  Scratch scratch(ctx);
  const Tensor d = scratch.tensor(shape, ctx.compute);
  {
    Scratch inner(ctx);
    const Tensor normed = inner.tensor(shape, ctx.compute);
    stream_->forward(ctx, h, normed, &tape);
    ops::CrossEntropy args = head(normed, here, losses);
    args.scale = scale;
    args.dhidden = d;
    args.dweight = output_->gradient;
    if (output_bias_ != nullptr) args.dbias = output_bias_->gradient;
    ops::cross_entropy(ctx, args);
  }
  // The token table's gradient is final after the embedding's, with the rest of the first matrices.
  if (ctx.watcher != nullptr && !config_.tied_output) ctx.watcher->complete_from(*output_);
  const Tensor dh = scratch.tensor(shape, ctx.residual_dtype());
  stream_->backward(ctx, d, dh, tape);
  embedding_->backward(ctx, dh, batch, here.first);
  tape.close_frame();
  LONGSTRIDE_CHECK(tape.empty(), "the tape is not empty after a step");
}

SequenceCost Decoder::cost(std::int64_t positions) const {
  SequenceCost cost;
  for (std::int64_t layer = 0; layer < config_.layers; ++layer)
    for (std::int64_t head = 0; head < config_.heads; ++head)
      cost.allowed_pairs +=
          static_cast<double>(kernels::allowed_pairs(config_.attention, layer, config_.heads, head, positions));
  const double n = static_cast<double>(positions);
  cost.dense_pairs = static_cast<double>(config_.layers * config_.heads) * (n * (n + 1) / 2);
  const double products = 2.0 * static_cast<double>(config_.key_size() + config_.value_size());
  cost.training_flops = 6.0 * static_cast<double>(parameters_.count()) * n + 3.0 * products * cost.allowed_pairs;
  return cost;
}

AttentionLayers Decoder::attention() const {
  return {config_.layers, config_.heads, config_.key_size(), config_.value_size(), config_.attention};
}

}  // namespace longstride
