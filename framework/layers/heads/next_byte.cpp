#include "framework/layers/heads/next_byte.h"

#include <string>

#include "framework/core/errors.h"
#include "framework/ops/basic.h"
#include "framework/ops/linear.h"
#include "kernels/copy_rows/copy_rows.h"

namespace longstride {

NextByteHead::NextByteHead(ParameterSet& parameters, const std::string& name, const NextByteConfig& config,
                           const TokenTable* tied)
    : dropout_{static_cast<float>(config.dropout), dropout_ids::output} {
  table_ = tied != nullptr ? tied : &own_.emplace(parameters, name, config.table);
  if (tied != nullptr && tied->bands().projects())
    projection_ = &parameters.add(name + ".projection.weight", tied->projection(0)->shape,
                                  {config.table.projection_deviation, 0});
  const Bands& bands = table_->bands();
  for (std::int64_t b = 0; b < bands.count() && config.biased; ++b)
    biases_.push_back(&parameters.add(bands.given() ? name + "." + std::to_string(b) + ".bias" : name + ".bias",
                                      {table_->choices(b)}, {}));
}

Tensor NextByteHead::narrow(Context& ctx, std::int64_t band, const Tensor& hidden, Scratch& scratch) const {
  const Parameter* p = projection(band);
  if (p == nullptr) return hidden;
  const Tensor rows = hidden.rows(), x = scratch.tensor({rows.size(0), p->shape[1]}, hidden.dtype());
  Context exact = ctx.without_fp8();
  ops::linear_backward_input(exact, rows, p->value, x);
  return x;
}

ops::CrossEntropy NextByteHead::choice(Context& ctx, std::int64_t band, const Tensor& hidden, const Asked& asked,
                                       const Tensor& losses, Scratch& scratch) const {
  ops::CrossEntropy args{.hidden = narrow(ctx, band, hidden, scratch),
                         .weight = table_->choice(band, &Parameter::value),
                         .targets = asked.targets,
                         .losses = losses,
                         .bias = bias(band, &Parameter::master),
                         .weights = asked.weights};
  if (!table_->bands().given()) return args;
  args.targets = scratch.tensor(asked.targets.shape(), asked.targets.dtype());
  args.weights = scratch.tensor(asked.targets.shape(), Dtype::f32);
  if (band > 0) args.losses = scratch.like(losses);
  ops::run(ctx, kernels::BandTargetsArgs{.targets = asked.targets,
                                         .weights = asked.weights,
                                         .places = args.targets,
                                         .asked = args.weights,
                                         .edges = table_->bands().edges(),
                                         .band = static_cast<int>(band)});
  return args;
}

void NextByteHead::losses(Context& ctx, const Tensor& hidden, const Asked& asked, const Tensor& losses,
                          const Tensor& right) const {
  const std::int64_t bands = table_->bands().count();
  LONGSTRIDE_CHECK(bands == 1 || !right.given(), "{} bands, whose answers are not judged", bands);
  for (std::int64_t b = 0; b < bands; ++b) {
    Scratch scratch(ctx);
    ops::CrossEntropy args = choice(ctx, b, hidden, asked, losses, scratch);
    args.right = right;
    ops::cross_entropy(ctx, args);
    if (b > 0) ops::run(ctx, kernels::AddArgs{args.losses, losses});
  }
}

void NextByteHead::scores(Context& ctx, const Tensor& hidden, const Tensor& scores) const {
  logits(ctx, hidden, scores.reshape({scores.count() / scores.size(-1), scores.size(-1)}));
}

void NextByteHead::choice_gradients(Context& ctx, ops::CrossEntropy args, std::int64_t band, const Tensor& hidden,
                                    const Tensor& dhidden) const {
  Scratch scratch(ctx);
  const Parameter* p = projection(band);
  args.dhidden = p == nullptr && band == 0 ? dhidden : scratch.like(args.hidden);
  args.dweight = table_->choice(band, &Parameter::gradient);
  args.dbias = bias(band, &Parameter::gradient);
  ops::cross_entropy(ctx, args);
  Context exact = ctx.without_fp8();
  if (p != nullptr) {
    ops::linear_backward_weight(ctx, hidden, args.dhidden, p->gradient, {});
    if (band > 0) return ops::linear_add(ctx, args.dhidden, p->value, dhidden);
    return ops::linear(exact, args.dhidden, p->value, {}, dhidden);
  }
  if (band > 0) ops::run(ctx, kernels::AddArgs{args.dhidden, dhidden});
}

void NextByteHead::loss_and_gradients(Context& ctx, const Tensor& hidden, const Asked& asked, double scale,
                                      const Tensor& losses, const Tensor& dhidden) const {
  dropout_.apply(ctx, hidden);
  for (std::int64_t b = 0; b < table_->bands().count(); ++b) {
    Scratch scratch(ctx);
    ops::CrossEntropy args = choice(ctx, b, hidden, asked, losses, scratch);
    args.scale = scale;
    choice_gradients(ctx, args, b, hidden, dhidden);
    if (b > 0) ops::run(ctx, kernels::AddArgs{args.losses, losses});
  }
  complete(ctx);
  dropout_.apply(ctx, dhidden);
}

void NextByteHead::complete(Context& ctx) const {
  if (ctx.watcher == nullptr) return;
  if (own_.has_value())
    ctx.watcher->complete_from(table_->front());
  else if (projection_ != nullptr)
    ctx.watcher->complete_from(*projection_);
}

void NextByteHead::backward_logits(Context& ctx, const Tensor& hidden, const Tensor& dlogits,
                                   const Tensor& dhidden) const {
  LONGSTRIDE_CHECK(!table_->bands().given(), "logits of bands");
  ops::linear_backward_weight(ctx, dlogits, hidden.rows(), weight().gradient, bias(0, &Parameter::gradient));
  Context exact = ctx.without_fp8();
  ops::linear_backward_input(exact, dlogits, weight().value, dhidden.rows());
  complete(ctx);
}

Tensor NextByteHead::choice_logits(Context& ctx, std::int64_t band, const Tensor& hidden, Dtype dtype,
                                   Scratch& scratch) const {
  const Tensor logits = scratch.tensor({hidden.rows().size(0), table_->choices(band)}, dtype),
               x = narrow(ctx, band, hidden, scratch);
  ops::linear(ctx, x, table_->choice(band, &Parameter::value), bias(band, &Parameter::master), logits);
  return logits;
}

void NextByteHead::logits(Context& ctx, const Tensor& hidden, const Tensor& logits) const {
  const Bands& bands = table_->bands();
  if (!bands.given()) return ops::linear(ctx, hidden.rows(), weight().value, bias(0, &Parameter::master), logits);
  Context exact = ctx.without_fp8();
  Scratch scratch(exact);
  const Tensor first = choice_logits(exact, 0, hidden, logits.dtype(), scratch);
  const auto part = [](const Tensor& rows, std::int64_t begin, std::int64_t end) {
    return rows.slice(1, begin, end).split_last(1, end - begin);
  };
  const std::int64_t clusters = bands.clusters(), ids = bands.first(1);
  ops::run(exact, kernels::CopyRowsArgs{part(first, clusters, clusters + ids), part(logits, 0, ids)});
  for (std::int64_t b = 1; b < bands.count(); ++b) {
    Scratch inner(exact);
    ops::run(exact, kernels::BandScoresArgs{.x = choice_logits(exact, b, hidden, logits.dtype(), inner),
                                            .clusters = first,
                                            .y = logits.slice(1, bands.first(b), bands.end(b, table_->vocabulary())),
                                            .cluster = b - 1});
  }
}

}  // namespace longstride
