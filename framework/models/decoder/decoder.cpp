#include "framework/models/decoder/decoder.h"

#include <algorithm>
#include <cmath>

#include "framework/core/errors.h"
#include "framework/ops/run.h"
#include "kernels/group_bounds/group_bounds.h"

namespace longstride {
namespace {

std::vector<PositionIndex> position_tables(const DecoderConfig& c) {
  if (c.positions == Positions::none) return {};
  if (c.positions == Positions::data) {
    const Geometry& g = c.geometry;
    return {{g.columns * g.channels, g.rows}, {g.channels, g.columns}, {1, g.channels}};
  }
  const std::int64_t stride = c.pattern_stride();
  return {{stride, (c.context + stride - 1) / stride}, {1, stride}};
}

std::unique_ptr<EmbeddingLayer> make_embedding(const DecoderConfig& c, ParameterSet& parameters) {
  const std::vector<PositionIndex> tables = position_tables(c);
  const auto width = static_cast<double>(c.width);
  return std::make_unique<EmbeddingLayer>(parameters, "embedding", c.vocabulary, c.width, tables,
                                          c.deviation_or(c.init_deviations.embedding, width),
                                          c.deviation(width * std::max(1.0, static_cast<double>(tables.size()))),
                                          c.embedding_scale ? std::sqrt(width) : 1.0);
}

}  // namespace

// The order of declarations is that of the flat buffers, and of the exchange between ranks.
Decoder::Decoder(const DecoderConfig& config)
    : config_(config),
      family_(config.make_mixers(parameters_, states_)),
      input_(std::make_unique<Input>(make_embedding(config, parameters_), config.embedding_dropout)) {
  stack_ = std::make_unique<Stack>(config, StackPlace{}, parameters_, [&](std::int64_t layer, const std::string& name) {
    return mixers_.emplace_back(family_->layer(parameters_, states_, {layer, name}));
  });
  head_ = std::make_unique<NextByteHead>(
      parameters_, "output",
      NextByteConfig{config.vocabulary, config.width, config.init_deviation, config.output_bias, config.output_dropout},
      config.tied_output ? &input_->embedding().token() : nullptr);
  parameters_.lay_out();
}

void Decoder::set_windows(const std::vector<std::int64_t>& of_layers) {
  if (!family_->set_windows(of_layers) && !of_layers.empty())
    throw user_error("train.stages sets a window, but this model has none");
}

BatchFields Decoder::fields() const {
  BatchFields fields = Model::fields();
  fields.groups = config_.documents.separate;
  fields.weights = config_.documents.padded;
  return fields;
}

std::int64_t Decoder::warm_up_steps() const {
  std::int64_t positions = 0;
  for (const auto& mixer : mixers_) positions = std::max(positions, mixer->remembered_positions());
  return (positions + config_.context - 1) / config_.context;
}

// A segment sees the positions that a layer remembers before its first one, and what a layer above remembers was made
// by whole segments. The first position of all reads the byte before it.
std::int64_t Decoder::reach_of_memory() const {
  std::int64_t below = 0, reach = 0;
  for (const auto& mixer : mixers_) {
    if (states_.empty() || mixer->remembers_without_end()) return Model::reach_of_memory();
    const std::int64_t positions = mixer->remembered_positions();
    reach = std::max(reach, below + positions);
    below += (positions + config_.context - 1) / config_.context * config_.context;
  }
  return reach + 1;
}

void Decoder::check_group(int ranks) const {
  for (const auto& mixer : mixers_)
    if (const std::string problem = mixer->problem_of_ranks(ranks); !problem.empty()) throw user_error("{}", problem);
  if (config_.context % ranks != 0)
    throw user_error("parallel.sequence_ranks is {}, which does not divide data.context, {}; choose a divisor", ranks,
                     config_.context);
}

SequenceCost Decoder::cost(std::int64_t positions) const {
  SequenceCost cost;
  cost.training_flops = 6.0 * static_cast<double>(parameters_.count()) * static_cast<double>(positions);
  for (const auto& mixer : mixers_) {
    const PairCost one = mixer->cost(positions);
    cost.allowed_pairs += one.pairs;
    cost.dense_pairs += one.dense_pairs;
    cost.training_flops += one.training_flops;
  }
  return cost;
}

Decoder::RankSpan Decoder::span_of(const Context& ctx, const Batch& batch, const Tensor& losses) const {
  const int ranks = ctx.sequence_ranks();
  const Tensor& tokens = batch.tokens;
  LONGSTRIDE_CHECK(tokens.rank() == 2 && tokens.size(1) <= config_.context &&
                       losses.shape() == Shape({tokens.size(0), tokens.size(1) / ranks}) &&
                       (ranks == 1 || (tokens.size(0) == 1 && tokens.size(1) % ranks == 0)),
                   "tokens {} and losses {} for a context of {} on {} ranks", tokens.shape().text(),
                   losses.shape().text(), config_.context, ranks);
  const std::int64_t run = tokens.size(1) / ranks, first = ctx.sequence_rank() * run;
  return {first,
          {batch.predicted().slice(1, first, first + run),
           batch.weights.given() ? batch.weights.slice(1, first, first + run) : Tensor{}}};
}

template <class Memory>
DocumentBounds Decoder::bounds_of(Context& ctx, const Batch& batch, Memory& memory) const {
  if (!batch.groups.given()) return {};
  const Shape shape = {batch.rows(), 1, batch.groups.size(1)};
  const DocumentBounds bounds = {memory.tensor(shape, Dtype::i32), memory.tensor(shape, Dtype::i32),
                                 config_.documents.restart};
  ops::run(ctx, kernels::GroupBoundsArgs{batch.groups, bounds.begin, bounds.end});
  return bounds;
}

void Decoder::losses(Context& ctx, const Batch& batch, const Tensor& losses) const {
  const RankSpan here = span_of(ctx, batch, losses);
  Context quiet = ctx;
  quiet.step = nullptr;  // no dropout
  {
    Scratch scratch(quiet);
    quiet.documents = bounds_of(quiet, batch, scratch);
    const Tensor h = scratch.tensor({losses.size(0), losses.size(1), config_.width}, ctx.residual_dtype());
    input_->forward(quiet, batch, h, here.first);
    const Tensor normed = scratch.tensor(h.shape(), ctx.compute);
    stack_->forward(quiet, h, normed, nullptr);
    head_->losses(quiet, normed, here.asked, losses);
    family_->end_step(quiet, batch.tokens.size(1));
  }
}

void Decoder::loss_and_gradients(Context& outer, const Batch& batch, double scale, const Tensor& losses) const {
  Context ctx = outer;
  LONGSTRIDE_CHECK(config_.recompute != Recompute::automatic, "a step whose recompute has not been chosen");
  for (const auto& mixer : mixers_) mixer->add_parameter_losses(ctx);
  const RankSpan here = span_of(ctx, batch, losses);
  const Shape shape = {losses.size(0), losses.size(1), config_.width};
  Tape tape(*ctx.arena);
  tape.open_frame();
  ctx.documents = bounds_of(ctx, batch, tape);
  const Tensor h = tape.tensor(shape, ctx.residual_dtype());
  input_->forward(ctx, batch, h, here.first);
  {
    Scratch scratch(ctx);
    const Tensor d = scratch.tensor(shape, ctx.compute);
    {
      Scratch inner(ctx);
      const Tensor normed = inner.tensor(shape, ctx.compute);
      stack_->forward(ctx, h, normed, &tape);
      head_->loss_and_gradients(ctx, normed, here.asked, scale, losses, d);
    }
    const Tensor dh = scratch.tensor(shape, ctx.residual_dtype());
    stack_->backward(ctx, d, dh, tape);
    input_->backward(ctx, dh, batch, here.first);
  }
  family_->end_step(ctx, batch.tokens.size(1));
  tape.close_frame();
  LONGSTRIDE_CHECK(tape.empty(), "the tape is not empty after a step");
}

void Decoder::visit_attention(Context& ctx, const Batch& batch, const std::vector<std::int64_t>& queries,
                              const AttentionVisitor& visit) const {
  LONGSTRIDE_CHECK(batch.rows() == 1 && ctx.device == Device::cpu, "{} rows", batch.rows());
  Context quiet = ctx;
  quiet.step = nullptr;
  Scratch scratch(quiet);
  quiet.documents = bounds_of(quiet, batch, scratch);
  const Tensor h = scratch.tensor({batch.rows(), batch.tokens.size(1), config_.width}, ctx.residual_dtype());
  const Tensor normed = scratch.tensor(h.shape(), ctx.compute);
  input_->forward(quiet, batch, h);
  stack_->observe_mixers(quiet, h, normed, [&](std::int64_t layer, const Tensor& in) {
    if (!mixer(layer).problem_of_probabilities().empty()) return;
    Probabilities all(queries.size());
    mixer(layer).show_probabilities(quiet, in, queries, [&](std::size_t n, const auto& heads) { all[n] = heads; });
    if (!quiet.planning()) visit(layer, all);
  });
}

}  // namespace longstride
