#include "framework/models/encoder/encoder.h"

#include <algorithm>

#include "framework/core/errors.h"
#include "framework/layers/heads/masked.h"
#include "framework/layers/heads/row.h"
#include "framework/layers/heads/span.h"

namespace longstride {
namespace {

// The parts that a head is made from.
struct HeadPlace {
  const EncoderConfig& config;
  ParameterSet& parameters;
  const TokenTable& tokens;

  NextByteConfig choice(std::int64_t answers) const {
    return {.table = {answers, config.width, config.deviation(static_cast<double>(config.width))},
            .biased = config.output_bias,
            .dropout = config.output_dropout};
  }
};

std::unique_ptr<Head> masked_head(const HeadPlace& at) {
  return std::make_unique<MaskedHead>(at.parameters, "masked", at.choice(at.config.vocabulary), at.config.activation,
                                      at.config.tied_output ? &at.tokens : nullptr);
}

std::unique_ptr<Head> class_head(const HeadPlace& at) {
  const Answers answers = at.config.objective->answers();
  return std::make_unique<RowHead>(at.parameters, "classes", at.choice(answers.choices),
                                   answers.of_mean ? RowOf::mean : RowOf::first);
}

std::unique_ptr<Head> label_head(const HeadPlace& at) {
  const Answers answers = at.config.objective->answers();
  return std::make_unique<RowHead>(at.parameters, "labels", at.choice(answers.choices),
                                   answers.of_mean ? RowOf::mean : RowOf::first, RowAnswers::each);
}

std::unique_ptr<Head> span_head(const HeadPlace& at) {
  return std::make_unique<SpanHead>(at.parameters, "spans", at.choice(2));
}

// A choice at every position, of which the last ones of groups are asked.
std::unique_ptr<Head> sentence_head(const HeadPlace& at) {
  return std::make_unique<NextByteHead>(at.parameters, "sentences", at.choice(at.config.objective->answers().choices),
                                        nullptr);
}

struct HeadKind {
  std::string_view objective;
  std::unique_ptr<Head> (*make)(const HeadPlace&);
};
constexpr HeadKind heads[] = {{"masked", masked_head},
                              {"classes", class_head},
                              {"labels", label_head},
                              {"spans", span_head},
                              {"sentences", sentence_head}};

}  // namespace

std::vector<std::string_view> Encoder::answered() {
  std::vector<std::string_view> out;
  for (const HeadKind& kind : heads) out.push_back(kind.objective);
  return out;
}

Encoder::Encoder(const EncoderConfig& config)
    : StackModel(config.clone(), {ReadsToken::own, config.embedding_norm, config.types}) {
  LONGSTRIDE_CHECK(config.objective != nullptr, "an encoder without an objective");
  const std::string_view asked = config.objective->kind();
  const auto* kind =
      std::find_if(std::begin(heads), std::end(heads), [&](const HeadKind& one) { return one.objective == asked; });
  LONGSTRIDE_CHECK(kind != std::end(heads), "an encoder with objective {}", asked);
  // Before the head: its gradients are final later.
  if (config.contrast > 0)
    contrast_ = std::make_unique<Contrast>(declared(), "contrast", config.global.added, config.width,
                                           config.deviation(static_cast<double>(config.width)), config.contrast,
                                           input().embedding().tokens().front());
  finish(kind->make({config, declared(), input().embedding().tokens()}));
}

std::vector<std::string> Encoder::auxiliary_losses() const {
  std::vector<std::string> names = StackModel::auxiliary_losses();
  if (contrast_ != nullptr) names.emplace_back("contrast");
  return names;
}

void Encoder::add_losses(Context& ctx, const Batch& batch, const Tensor& rows, const Tensor& d) const {
  if (contrast_ == nullptr) return;
  const auto last = static_cast<std::int64_t>(StackModel::auxiliary_losses().size());
  contrast_->add(ctx, batch, rows, ctx.auxiliary.sums.slice(0, last, last + 1), d);
}

void Encoder::predict(Context& ctx, const Batch& batch, const Tensor& scores) const {
  with_hidden(ctx, batch, [&](Context& quiet, const Tensor& hidden) { head().scores(quiet, hidden, scores); });
}

void Encoder::judge(Context& ctx, const Batch& batch, const Tensor& losses, const Tensor& right) const {
  losses_with(ctx, batch, losses, right);
}

}  // namespace longstride
