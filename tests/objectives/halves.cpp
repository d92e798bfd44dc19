#include "tests/objectives/halves.h"

#include <numbers>

#include "datasets/objectives/kinds.h"
#include "framework/models/registry.h"
#include "framework/ops/basic.h"
#include "framework/ops/cross_entropy.h"
#include "kernels/base/philox.h"
#include "kernels/copy_rows/copy_rows.h"

namespace longstride {

void Halves::visit(SettingsVisitor& v) { v.field("noise", noise_, Need::optional, ranges::fraction); }

void Halves::write(const Batch& batch, std::int64_t row, const RowBytes& of, const RowKey& key) const {
  write_row({.tokens = batch.tokens, .starts = batch.starts}, row, of.bytes, of.before, of.starts);
  if (!batch.targets.given()) return;
  const auto drawn =
      kernels::philox(key.seed, static_cast<std::uint64_t>(key.row), 0, kernels::domain_of(kernels::Purpose::test, 0));
  const std::uint8_t last = of.bytes[batch.tokens.size(1) - 1];
  const bool high = last >= 'n', wrong = drawn.word[0] < noise_ * 0x1p32;
  batch.targets.as<std::uint8_t>()[row] = high != wrong ? 1 : 0;
  batch.weights.as<float>()[row] = last == 'z' ? 0.0f : 1.0f;
}

// The right one of two classes has a loss below that of guessing.
void Halves::add(const Answered& one, double* sums) const {
  sums[0] += one.loss;
  sums[1] += one.loss < one.weight * guess() ? one.weight : 0;
}

std::vector<Figure> Halves::figures(const Scored& scored) const {
  const Figure loss{"loss", scored.loss(), true, scored.error, "nats"};
  if (scored.sums.size() == 1) return {loss};
  return {{"Share of right answers", scored.sums[1] / scored.weight, false}, loss};
}

double Halves::guess() const { return std::numbers::ln2; }

std::unique_ptr<Model> ClassifierConfig::make_model() const { return std::make_unique<Classifier>(*this); }

Classifier::Classifier(const ClassifierConfig& config) : config_(config) {
  const TableForm tokens = {vocabulary(), config.width, 0.1};
  embedding_ = std::make_unique<EmbeddingLayer>(parameters_, "embedding", tokens, std::vector<PositionIndex>{}, 0.1);
  output_ = &parameters_.add("output.weight", {2, config.width}, {0.1, 0});
  parameters_.lay_out();
}

void Classifier::read(Context& ctx, const Batch& batch, const Tensor& all, const Tensor& last) const {
  embedding_->forward(ctx, batch, all);
  ops::run(ctx, kernels::CopyRowsArgs{all.slice(1, all.size(1) - 1, all.size(1)), last});
}

void Classifier::losses(Context& ctx, const Batch& batch, const Tensor& losses) const {
  Scratch scratch(ctx);
  const Shape& tokens = batch.tokens.shape();
  const Tensor last = scratch.tensor({tokens[0], 1, config_.width}, ctx.compute);
  read(ctx, batch, scratch.tensor({tokens[0], tokens[1], config_.width}, ctx.compute), last);
  ops::cross_entropy(
      ctx,
      {.hidden = last, .weight = output_->value, .targets = batch.targets, .losses = losses, .weights = batch.weights});
}

void Classifier::loss_and_gradients(Context& ctx, const Batch& batch, double scale, const Tensor& losses) const {
  Scratch scratch(ctx);
  const Shape& tokens = batch.tokens.shape();
  const Tensor last = scratch.tensor({tokens[0], 1, config_.width}, ctx.compute), dlast = scratch.like(last);
  const Tensor all = scratch.tensor({tokens[0], tokens[1], config_.width}, ctx.compute);
  read(ctx, batch, all, last);
  ops::cross_entropy(ctx, {.hidden = last,
                           .weight = output_->value,
                           .targets = batch.targets,
                           .losses = losses,
                           .scale = scale,
                           .dhidden = dlast,
                           .dweight = output_->gradient,
                           .weights = batch.weights});
  if (ctx.watcher != nullptr) ctx.watcher->complete_from(*output_);
  ops::fill_zero(ctx, all);
  ops::run(ctx, kernels::CopyRowsArgs{dlast, all.slice(1, all.size(1) - 1, all.size(1))});
  embedding_->backward(ctx, all, batch);
}

SequenceCost Classifier::cost(std::int64_t positions) const {
  return {6.0 * static_cast<double>(parameters_.count() * positions), 0, 0};
}

[[maybe_unused]] const bool objective_registered = register_objective<Halves>();
[[maybe_unused]] const bool model_registered = register_model<ClassifierConfig>();

}  // namespace longstride
