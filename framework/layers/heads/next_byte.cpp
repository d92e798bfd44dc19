#include "framework/layers/heads/next_byte.h"

#include "framework/ops/linear.h"

namespace longstride {

NextByteHead::NextByteHead(ParameterSet& parameters, const std::string& name, const NextByteConfig& config,
                           Parameter* tied)
    : tied_(tied != nullptr),
      weight_(tied_ ? tied
                    : &parameters.add(name + ".weight", {config.vocabulary, config.width}, {config.deviation, 0})),
      bias_(config.biased ? &parameters.add(name + ".bias", {config.vocabulary}, {}) : nullptr),
      dropout_{static_cast<float>(config.dropout), dropout_ids::output} {}

ops::CrossEntropy NextByteHead::cross_entropy(const Tensor& hidden, const Asked& asked, const Tensor& losses) const {
  return {.hidden = hidden,
          .weight = weight_->value,
          .targets = asked.targets,
          .losses = losses,
          .bias = bias(),
          .weights = asked.weights};
}

void NextByteHead::losses(Context& ctx, const Tensor& hidden, const Asked& asked, const Tensor& losses,
                          const Tensor& right) const {
  ops::CrossEntropy args = cross_entropy(hidden, asked, losses);
  args.right = right;
  ops::cross_entropy(ctx, args);
}

void NextByteHead::scores(Context& ctx, const Tensor& hidden, const Tensor& scores) const {
  logits(ctx, hidden, scores.reshape({scores.count() / scores.size(-1), scores.size(-1)}));
}

void NextByteHead::loss_and_gradients(Context& ctx, const Tensor& hidden, const Asked& asked, double scale,
                                      const Tensor& losses, const Tensor& dhidden) const {
  dropout_.apply(ctx, hidden);
  ops::CrossEntropy args = cross_entropy(hidden, asked, losses);
  args.scale = scale;
  args.dhidden = dhidden;
  args.dweight = weight_->gradient;
  if (bias_ != nullptr) args.dbias = bias_->gradient;
  ops::cross_entropy(ctx, args);
  // A token table's gradient is final after the embedding's, with the rest of the first matrices.
  if (ctx.watcher != nullptr && !tied_) ctx.watcher->complete_from(*weight_);
  dropout_.apply(ctx, dhidden);
}

void NextByteHead::backward_logits(Context& ctx, const Tensor& hidden, const Tensor& dlogits,
                                   const Tensor& dhidden) const {
  ops::linear_backward_weight(ctx, dlogits, hidden.rows(), weight_->gradient,
                              bias_ != nullptr ? bias_->gradient : Tensor{});
  Context exact = ctx.without_fp8();
  ops::linear_backward_input(exact, dlogits, weight_->value, dhidden.rows());
  if (ctx.watcher != nullptr && !tied_) ctx.watcher->complete_from(*weight_);
}

void NextByteHead::logits(Context& ctx, const Tensor& hidden, const Tensor& logits) const {
  ops::linear(ctx, hidden.rows(), weight_->value, bias(), logits);
}

}  // namespace longstride
