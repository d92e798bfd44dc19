#include "framework/train/evaluate/window_scorer.h"

#include <algorithm>
#include <limits>

#include "framework/ops/state.h"

namespace longstride {
namespace {

BatchLayout layout_of(const Model& model, std::int64_t rows, std::int64_t length) {
  return {model.fields(), rows, length};
}

std::size_t losses_bytes(const Model& model, const EvaluationConfig& config) {
  return static_cast<std::size_t>(config.batch * model.fields().losses(config.context)) * sizeof(float);
}

std::size_t right_bytes(const Model& model, const EvaluationConfig& config) {
  const auto* judges = capability<Judges>(model);
  if (judges == nullptr) return 0;
  return static_cast<std::size_t>(config.batch * model.fields().losses(config.context)) *
         kernels::bytes_of(judges->judged());
}

Tensor take_block(Scratch& scratch, const BatchLayout& layout) {
  return scratch.tensor({static_cast<std::int64_t>(layout.bytes())}, Dtype::u8);
}

// The losses of a batch, with what its rows remember, and which answers are right, if that is to be known. Counts as it
// computes.
void score_batch(const Model& model, Context& ctx, const Batch& batch, const Tensor& losses, const Tensor& right) {
  if (ctx.state.given()) ops::begin_states(ctx, model.states(), ctx.state, batch.starts);
  if (right.given())
    capability<Judges>(model)->judge(ctx, batch, losses, right);
  else
    model.losses(ctx, batch, losses);
  ops::keep_states(ctx, ctx.state);
}

double judged_at(const std::byte* right, Dtype type, std::int64_t i) {
  if (type == Dtype::f32) return static_cast<double>(reinterpret_cast<const float*>(right)[i]);
  return static_cast<double>(right[i]);
}

}  // namespace

WindowScorer::WindowScorer(const Model& model, const Objective& objective, Context& ctx, const SequenceSet& sequences,
                           const std::vector<EvaluationWindow>& windows, const EvaluationConfig& config)
    : model_(model),
      objective_(objective),
      ctx_(ctx),
      sequences_(sequences),
      windows_(windows),
      scratch_(ctx_),
      host_rows_(ctx.device, layout_of(model, config.batch, config.context).bytes()),
      host_losses_(ctx.device, losses_bytes(model, config)),
      host_right_(ctx.device, right_bytes(model, config)),
      scores_(windows.size() * (1 + objective.sums()), 0.0),
      fields_(model.fields()),
      judges_(objective.judges()),
      longest_(config.context),
      most_(fields_.losses(config.context)) {
  if (config.keep_losses) losses_.assign(windows.size() * static_cast<std::size_t>(most_), 0.0f);
  ctx_.state = ops::take_states(ctx, model.states(), config.batch, scratch_);
}

std::size_t WindowScorer::bytes(const Model& model, const Context& ctx, const EvaluationConfig& config) {
  Arena counting;
  Context planned = ctx;
  planned.arena = &counting;
  Scratch scratch(planned);
  planned.state = ops::take_states(planned, model.states(), config.batch, scratch);
  const BatchLayout layout = layout_of(model, config.batch, config.context);
  const Tensor block = take_block(scratch, layout);
  const std::int64_t each = model.fields().losses(config.context / ctx.sequence_ranks());
  const Tensor losses = scratch.tensor({config.batch, each}, ctx.exact);
  const auto* judges = capability<Judges>(model);  // an objective may ask it to
  const Tensor right = judges != nullptr ? scratch.tensor(losses.shape(), judges->judged()) : Tensor{};
  score_batch(model, planned, layout.at(block.data()), losses, right);
  return counting.high_water();
}

std::size_t WindowScorer::host_bytes(const Model& model, const EvaluationConfig& config) {
  return layout_of(model, config.batch, config.context).bytes() + losses_bytes(model, config) +
         right_bytes(model, config);
}

void WindowScorer::score(const std::vector<ScoredRow>& rows, std::int64_t length) {
  const auto count = static_cast<std::int64_t>(rows.size());
  // The ranks of a group have equal runs.
  const int ranks = ctx_.sequence_ranks();
  const std::int64_t positions = std::min(length + objective_.leading(), longest_);
  const std::int64_t run = (positions + ranks - 1) / ranks;
  Scratch scratch(ctx_);
  const BatchLayout layout = layout_of(model_, count, run * ranks);
  const Tensor block = take_block(scratch, layout), losses = scratch.tensor({count, fields_.losses(run)}, ctx_.exact);
  const Tensor right = judges_ ? scratch.tensor(losses.shape(), capability<Judges>(model_)->judged()) : Tensor{};
  const Batch host = layout.at(host_rows_.of(block));
  read(rows, host);
  const Queue queue = ctx_.queue();
  host_rows_.send(queue, block);
  Context here = ctx_;
  if (ctx_.state.given()) here.state = ctx_.state.slice(0, count);
  score_batch(model_, here, layout.at(block.data()), losses, right);
  const void* const scored = host_losses_.fetch(queue, losses);
  const std::byte* const judged = judges_ ? host_right_.fetch(queue, right) : nullptr;
  queue.synchronize();
  kernels::with_float_type(losses.dtype(), [&](auto zero) {
    add(rows, run, host.weights, static_cast<const decltype(zero)*>(scored), judged);
  });
}

void WindowScorer::read(const std::vector<ScoredRow>& rows, const Batch& batch) const {
  const std::int64_t each = sequences_.token_bytes();
  std::vector<std::uint8_t> bytes(static_cast<std::size_t>((batch.tokens.size(1) + 1) * each));  // and the one before
  for (std::size_t r = 0; r < rows.size(); ++r) {
    std::fill(bytes.begin(), bytes.end(), std::uint8_t{0});
    const auto row = static_cast<std::int64_t>(r);
    const bool starts = rows[r].starts, given = rows[r].window >= 0;
    const EvaluationWindow w = given ? windows_[static_cast<std::size_t>(rows[r].window)] : EvaluationWindow{};
    const std::int64_t before = starts ? 0 : 1;
    if (given) sequences_.read(w.sequence, w.start - before, w.length + before, bytes.data() + (1 - before) * each);
    RowBytes of = sequences_.row(w.sequence, w.start, w.length, bytes.data() + each);
    of.before = static_cast<std::uint16_t>(kernels::Ids{bytes.data(), of.wide}[0]), of.starts = starts;
    objective_.write_row_of(batch, row, of, {0, rows[r].window});
  }
}

WindowScorer::LossRange WindowScorer::scored_of(const EvaluationWindow& window, std::int64_t first,
                                                std::int64_t positions) const {
  if (fields_.asked > 0) return {0, fields_.asked};
  return {std::max(window.scored_from, first), std::min(window.length, first + positions)};
}

template <class T>
void WindowScorer::add(const std::vector<ScoredRow>& rows, std::int64_t run, const Tensor& weights, const T* losses,
                       const std::byte* right) {
  const std::int64_t first = fields_.asked > 0 ? 0 : ctx_.sequence_rank() * run;
  const Dtype judged = right != nullptr ? capability<Judges>(model_)->judged() : Dtype::u8;
  for (std::size_t r = 0; r < rows.size(); ++r) {
    if (rows[r].window < 0 || !rows[r].counts) continue;
    const auto window = static_cast<std::size_t>(rows[r].window);
    const std::int64_t of_row = static_cast<std::int64_t>(r) * fields_.losses(run);
    const T* row = losses + of_row;
    const float* weight =
        weights.given() ? weights.as<float>() + static_cast<std::int64_t>(r) * weights.size(1) : nullptr;
    double* scores = scores_.data() + window * (1 + objective_.sums());
    const auto [begin, end] = scored_of(windows_[window], first, run);
    for (std::int64_t t = begin; t < end; ++t) {
      const T loss = row[t - first];
      const double counts = weight != nullptr ? static_cast<double>(weight[t]) : 1;
      scores[0] += counts;
      const double how_right = right != nullptr ? judged_at(right, judged, of_row + t - first) : 0;
      objective_.add({static_cast<double>(loss), counts, how_right, t}, scores + 1);
      if (!losses_.empty())
        losses_[window * static_cast<std::size_t>(most_) + static_cast<std::size_t>(t)] = static_cast<float>(loss);
    }
  }
}

std::vector<float> WindowScorer::take_losses(Communicator& comm) {
  if (losses_.empty()) return {};
  comm.all_reduce_sum(losses_.data(), std::ssize(losses_));
  float* row = losses_.data();
  for (const EvaluationWindow& window : windows_) {
    const auto [begin, end] = scored_of(window, 0, most_);
    std::fill(row, row + begin, std::numeric_limits<float>::quiet_NaN());
    std::fill(row + end, row + most_, std::numeric_limits<float>::quiet_NaN());
    row += most_;
  }
  return std::move(losses_);
}

}  // namespace longstride
