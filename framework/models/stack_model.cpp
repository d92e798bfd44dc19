#include "framework/models/stack_model.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "framework/core/errors.h"
#include "framework/ops/basic.h"
#include "kernels/global_rows/global_rows.h"
#include "kernels/group_bounds/group_bounds.h"

namespace longstride {
namespace {

std::vector<PositionIndex> position_tables(const StackConfig& c) {
  if (c.positions == Positions::none) return {};
  if (c.positions == Positions::learned) return {{1, c.context}};
  if (c.positions == Positions::data) {
    const Geometry& g = c.geometry;
    return {{g.columns * g.channels, g.rows}, {g.channels, g.columns}, {1, g.channels}};
  }
  const std::int64_t stride = c.pattern_stride();
  return {{stride, (c.context + stride - 1) / stride}, {1, stride}};
}

std::unique_ptr<EmbeddingLayer> make_embedding(const StackConfig& c, ReadsToken reads, ParameterSet& parameters) {
  const std::vector<PositionIndex> tables = position_tables(c);
  const auto width = static_cast<double>(c.width);
  TableForm tokens = c.table();
  tokens.has_clusters = c.tied_output;
  return std::make_unique<EmbeddingLayer>(parameters, "embedding", tokens, tables,
                                          c.deviation(width * std::max(1.0, static_cast<double>(tables.size()))),
                                          c.embedding_scale ? std::sqrt(width) : 1.0, reads);
}

std::unique_ptr<EmbeddingLayer> make_types(const StackConfig& c, ParameterSet& parameters) {
  const double deviation = c.deviation_or(c.init_deviations.embedding, static_cast<double>(c.width));
  return std::make_unique<EmbeddingLayer>(parameters, "embedding.types", TableForm{2, c.width, deviation},
                                          std::vector<PositionIndex>{}, deviation, 1, ReadsToken::own, "");
}

}  // namespace

// The order of declarations is that of the flat buffers, and of the exchange between ranks.
StackModel::StackModel(std::shared_ptr<const StackConfig> config, const InputForm& input)
    : config_(std::move(config)), family_(config_->make_mixers(parameters_, states_)) {
  const StackConfig& c = *config_;
  auto embedding = make_embedding(c, input.reads, parameters_);
  auto types = input.types ? make_types(c, parameters_) : nullptr;
  auto norm = input.norm ? std::make_unique<LayerNorm>(parameters_, "embedding.norm", c.width) : nullptr;
  std::unique_ptr<AddedRows> added;
  if (c.global.added > 0)
    added = std::make_unique<AddedRows>(parameters_, "embedding.global", c.global.added, !c.global.of_groups, c.width,
                                        c.deviation_or(c.init_deviations.embedding, static_cast<double>(c.width)));
  input_ = std::make_unique<Input>(std::move(embedding), c.embedding_dropout, std::move(norm), std::move(added),
                                   std::move(types));
  stack_ = std::make_unique<Stack>(c, StackPlace{}, parameters_, [&](std::int64_t layer, const std::string& name) {
    return mixers_.emplace_back(family_->layer(parameters_, states_, {layer, name}));
  });
}

void StackModel::finish(std::unique_ptr<Head> head) {
  head_ = std::move(head);
  parameters_.lay_out();
}

void StackModel::set_windows(const std::vector<std::int64_t>& of_layers) {
  if (!family_->set_windows(of_layers) && !of_layers.empty())
    throw user_error("train.stages sets a window, but this model has none");
}

BatchFields StackModel::fields() const {
  BatchFields fields = Model::fields();
  if (config_->objective != nullptr) {
    const BatchFields asked = config_->objective->fields();
    fields.targets |= asked.targets, fields.weights |= asked.weights;
    fields.asked = asked.asked;
  }
  fields.groups = config_->documents.separate;
  fields.types = input_->reads_types();
  fields.sentences = config_->global.of_groups;
  fields.weights |= config_->documents.padded;
  return fields;
}

std::int64_t StackModel::warm_up_steps() const {
  std::int64_t positions = 0;
  for (const auto& mixer : mixers_) positions = std::max(positions, mixer->remembered_positions());
  return (positions + config_->context - 1) / config_->context;
}

// A segment sees the positions that a layer remembers before its first one, and what a layer above remembers was made
// by whole segments. The first position of all reads the byte before it.
std::int64_t StackModel::reach_of_memory() const {
  std::int64_t below = 0, reach = 0;
  for (const auto& mixer : mixers_) {
    if (states_.empty() || mixer->remembers_without_end()) return Model::reach_of_memory();
    const std::int64_t positions = mixer->remembered_positions();
    reach = std::max(reach, below + positions);
    below += (positions + config_->context - 1) / config_->context * config_->context;
  }
  return reach + 1;
}

SequenceCost StackModel::cost(std::int64_t positions) const {
  SequenceCost cost;
  cost.training_flops = 6.0 * static_cast<double>(parameters_.count()) * static_cast<double>(added_rows() + positions);
  for (const auto& mixer : mixers_) {
    const PairCost one = mixer->cost(positions);
    cost.allowed_pairs += one.pairs;
    cost.dense_pairs += one.dense_pairs;
    cost.training_flops += one.training_flops;
  }
  return cost;
}

// Questions about a row as a whole are not divided.
StackModel::RankSpan StackModel::span_of(const Context& ctx, const Batch& batch) const {
  const int ranks = ctx.sequence_ranks();
  const Tensor& tokens = batch.tokens;
  LONGSTRIDE_CHECK(tokens.rank() == 2 && tokens.size(1) <= config_->context &&
                       (ranks == 1 || (tokens.size(0) == 1 && tokens.size(1) % ranks == 0)),
                   "tokens {} for a context of {} on {} ranks", tokens.shape().text(), config_->context, ranks);
  const std::int64_t run = tokens.size(1) / ranks, first = ctx.sequence_rank() * run;
  const auto own = [&](const Tensor& asked) {
    return !asked.given() || ranks == 1 ? asked : asked.slice(1, first, first + run);
  };
  return {first, run, {own(batch.predicted()), own(batch.weights)}};
}

template <class Memory>
void StackModel::set_bounds(Context& ctx, const Batch& batch, Memory& memory) const {
  if (batch.groups.given()) {
    const Shape shape = {batch.rows(), 1, batch.groups.size(1)};
    ctx.documents = {memory.tensor(shape, Dtype::i32), memory.tensor(shape, Dtype::i32), config_->documents.restart};
    ops::run(ctx, kernels::GroupBoundsArgs{batch.groups, ctx.documents.begin, ctx.documents.end});
  }
  if (added_rows() == 0) return;
  ctx.documents.restart = false;  // a row is one document and padding
  ctx.global = global_sight(ctx, batch, memory);
}

template <class Memory>
kernels::GlobalSight StackModel::global_sight(Context& ctx, const Batch& batch, Memory& memory) const {
  if (!batch.groups.given() && !batch.sentences.given()) return {};
  const std::int64_t rows = batch.rows(), n = batch.tokens.size(1), added = added_rows();
  const auto bounds_of = [&](std::int64_t queries) {
    const Shape shape = {rows, 1, queries};
    return kernels::GlobalBounds{memory.tensor(shape, Dtype::i32), memory.tensor(shape, Dtype::i32)};
  };
  kernels::GlobalSight sight;
  sight.positions_by_rows = bounds_of(added);
  if (batch.sentences.given()) {
    sight.rows_by_positions = bounds_of(n), sight.rows_by_rows = bounds_of(added);
    sight.group_of_position = memory.tensor({rows, n}, Dtype::i32);
    sight.group_of_row = memory.tensor({rows, added}, Dtype::i32);
  }
  ops::run(
      ctx,
      kernels::GlobalRowsArgs{
          .groups = batch.sentences, .end = ctx.documents.end, .own_group = config_->global.own_group, .sight = sight});
  return sight;
}

Tensor StackModel::of_positions(Context& ctx, const Tensor& rows, Scratch& scratch) const {
  const AddedRows* added = input_->added();
  if (added == nullptr) return rows;
  const Tensor positions = scratch.tensor({rows.size(0), rows.size(1) - added->count(), rows.size(2)}, rows.dtype());
  added->take(ctx, rows, positions);
  return positions;
}

void StackModel::losses_with(Context& ctx, const Batch& batch, const Tensor& losses, const Tensor& right) const {
  const Head::Asked asked = span_of(ctx, batch).asked;
  LONGSTRIDE_CHECK(losses.shape() == asked.targets.shape(), "losses {} of {}", losses.shape().text(),
                   asked.targets.shape().text());
  with_hidden(ctx, batch,
              [&](Context& quiet, const Tensor& hidden) { head_->losses(quiet, hidden, asked, losses, right); });
}

void StackModel::losses(Context& ctx, const Batch& batch, const Tensor& losses) const {
  losses_with(ctx, batch, losses, {});
}

void StackModel::encode(Context& ctx, const Batch& batch, const Tensor& hidden) const {
  with_hidden(ctx, batch, [&](Context& quiet, const Tensor& normed) { ops::copy(quiet, normed, hidden); });
}

void StackModel::loss_and_gradients(Context& outer, const Batch& batch, double scale, const Tensor& losses) const {
  Context ctx = outer;
  LONGSTRIDE_CHECK(config_->recompute != Recompute::automatic, "a step whose recompute has not been chosen");
  for (const auto& mixer : mixers_) mixer->add_parameter_losses(ctx);
  const RankSpan here = span_of(ctx, batch);
  const Shape shape = {batch.rows(), added_rows() + here.positions, config_->width};
  Tape tape(*ctx.arena);
  tape.open_frame();
  set_bounds(ctx, batch, tape);
  const Tensor h = tape.tensor(shape, ctx.residual_dtype());
  input_->forward(ctx, batch, h, &tape, here.first);
  {
    Scratch scratch(ctx);
    const Tensor d = scratch.tensor(shape, ctx.compute);
    {
      Scratch inner(ctx);
      const Tensor normed = inner.tensor(shape, ctx.compute);
      stack_->forward(ctx, h, normed, &tape);
      if (const AddedRows* added = input_->added(); added == nullptr) {
        head_->loss_and_gradients(ctx, normed, here.asked, scale, losses, d);
      } else {
        const Tensor hidden = of_positions(ctx, normed, inner), dhidden = inner.like(hidden);
        head_->loss_and_gradients(ctx, hidden, here.asked, scale, losses, dhidden);
        ops::fill_zero(ctx, d);
        added->place(ctx, dhidden, d);
        if (ctx.auxiliary.sums.given()) add_losses(ctx, batch, normed, d);
      }
    }
    const Tensor dh = scratch.tensor(shape, ctx.residual_dtype());
    stack_->backward(ctx, d, dh, tape);
    input_->backward(ctx, dh, batch, tape, here.first);
  }
  family_->end_step(ctx, batch.tokens.size(1));
  tape.close_frame();
  LONGSTRIDE_CHECK(tape.empty(), "the tape is not empty after a step");
}

void StackModel::visit_attention(Context& ctx, const Batch& batch, const std::vector<std::int64_t>& queries,
                                 const AttentionVisitor& visit) const {
  LONGSTRIDE_CHECK(batch.rows() == 1 && ctx.device == Device::cpu, "{} rows", batch.rows());
  Context quiet = ctx;
  quiet.step = nullptr;
  Scratch scratch(quiet);
  set_bounds(quiet, batch, scratch);
  const Tensor h =
      scratch.tensor({batch.rows(), added_rows() + batch.tokens.size(1), config_->width}, ctx.residual_dtype());
  const Tensor normed = scratch.tensor(h.shape(), ctx.compute);
  input_->forward(quiet, batch, h, nullptr);
  stack_->observe_mixers(quiet, h, normed, [&](std::int64_t layer, const Tensor& in) {
    if (!mixer(layer).problem_of_probabilities().empty()) return;
    Probabilities all(queries.size());
    mixer(layer).show_probabilities(quiet, in, queries, [&](std::size_t n, const auto& heads) { all[n] = heads; });
    if (!quiet.planning()) visit(layer, all);
  });
}

}  // namespace longstride
