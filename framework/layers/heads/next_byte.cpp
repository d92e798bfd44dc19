#include "framework/layers/heads/next_byte.h"

#include "framework/core/errors.h"

#include "framework/ops/basic.h"
#include "framework/ops/linear.h"

namespace longstride {

NextByteHead::NextByteHead(ParameterSet& parameters, const std::string& name, const NextByteConfig& config,
                           const TokenTable* tied)
    : dropout_{static_cast<float>(config.dropout), dropout_ids::output} {
  table_ = tied != nullptr ? tied : &own_.emplace(parameters, name, config.table);
  if (tied != nullptr && tied->bands().projects())
    projection_ = &parameters.add(name + ".projection.weight", tied->projection(0)->shape,
                                  {config.table.projection_deviation, 0});
  bias_ = config.biased ? &parameters.add(name + ".bias", {table_->rows()}, {}) : nullptr;
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
                         .bias = bias(band),
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
  if (bias_ != nullptr) args.dbias = table_->choice(band, bias_->gradient);
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
  ops::linear_backward_weight(ctx, dlogits, hidden.rows(), weight().gradient,
                              bias_ != nullptr ? bias_->gradient : Tensor{});
  Context exact = ctx.without_fp8();
  ops::linear_backward_input(exact, dlogits, weight().value, dhidden.rows());
  complete(ctx);
}

void NextByteHead::logits(Context& ctx, const Tensor& hidden, const Tensor& logits) const {
  const Bands& bands = table_->bands();
  Scratch scratch(ctx);
  const Tensor x = narrow(ctx, 0, hidden, scratch).rows(), weight = table_->choice(0, &Parameter::value), b = bias(0);
  if (!bands.given()) return ops::linear(ctx, x, weight, b, logits);
  Context exact = ctx.without_fp8();
  const std::int64_t count = bands.clusters();
  const auto part = [](const Tensor& of, std::int64_t begin, std::int64_t end) {
    return of.given() ? of.slice(0, begin, end) : of;
  };
  const Tensor clusters = scratch.tensor({x.size(0), count}, logits.dtype());
  ops::linear(exact, x, part(weight, 0, count), part(b, 0, count), clusters);
  ops::linear(exact, x, part(weight, count, weight.size(0)), part(b, count, weight.size(0)),
              logits.slice(1, 0, bands.end(0, table_->vocabulary())));
  for (std::int64_t band = 1; band < bands.count(); ++band) add_band_scores(exact, band, hidden, clusters, logits);
}

void NextByteHead::add_band_scores(Context& ctx, std::int64_t band, const Tensor& hidden, const Tensor& clusters,
                                   const Tensor& logits) const {
  Scratch scratch(ctx);
  const Bands& bands = table_->bands();
  const std::int64_t begin = bands.first(band), end = bands.end(band, table_->vocabulary());
  const Tensor x = narrow(ctx, band, hidden, scratch).rows(),
               own = scratch.tensor({x.size(0), end - begin}, logits.dtype());
  ops::linear(ctx, x, table_->choice(band, &Parameter::value), bias(band), own);
  ops::run(ctx, kernels::BandScoresArgs{
                    .x = own, .clusters = clusters, .y = logits.slice(1, begin, end), .cluster = band - 1});
}

}  // namespace longstride
