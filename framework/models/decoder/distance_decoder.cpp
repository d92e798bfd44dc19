#include "framework/models/decoder/distance_decoder.h"

#include <algorithm>

#include "framework/core/errors.h"

namespace longstride {

DistanceDecoder::DistanceDecoder(const DecoderConfig& config)
    : config_(config),
      shared_(declare_shared_distance(parameters_, shape(), config.distance)),
      remembered_(std::make_shared<RememberedPositions>(states_, config.memory)),
      trunk_(config, parameters_,
             [this](std::int64_t layer, const std::string& name) { return make_attention(layer, name); }) {}

DistanceShape DistanceDecoder::shape() const {
  return {config_.width, config_.heads, config_.key_size(), config_.deviation(static_cast<double>(config_.width))};
}

std::shared_ptr<const DistanceBranch> DistanceDecoder::make_attention(std::int64_t layer, const std::string& name) {
  DistanceBranchConfig attention;
  attention.shape = shape();
  attention.value_size = config_.value_size();
  attention.output_deviation = config_.shrink() * attention.shape.deviation;
  attention.biased = config_.attention_bias;
  attention.transform = {config_.query_key_norm, config_.rotary_base};
  attention.distance = config_.distance;
  attention.memory = config_.memory;
  attention.layer = layer;
  attention_.push_back(std::make_shared<DistanceBranch>(parameters_, states_, name, attention, shared_, remembered_));
  return attention_.back();
}

void DistanceDecoder::losses(Context& ctx, const Batch& batch, const Tensor& losses) const {
  trunk_.losses(ctx, batch, losses);
  remembered_->add(ctx, batch.tokens.size(1));
}

std::vector<std::string> DistanceDecoder::auxiliary_losses() const {
  if (config_.distance.span.loss > 0) return {"span"};
  return {};
}

void DistanceDecoder::loss_and_gradients(Context& ctx, const Batch& batch, double scale, const Tensor& losses) const {
  if (ctx.auxiliary.sums.given() && ctx.auxiliary.once)
    for (const auto& branch : attention_) branch->add_span_loss(ctx, config_.distance.span.loss, ctx.auxiliary.sums);
  trunk_.loss_and_gradients(ctx, batch, scale, losses);
  remembered_->add(ctx, batch.tokens.size(1));
}

std::int64_t DistanceDecoder::warm_up_steps() const {
  return (config_.memory.length + config_.context - 1) / config_.context;
}

// Pairs as if the memory were full and every span the longest.
SequenceCost DistanceDecoder::cost(std::int64_t positions) const {
  SequenceCost cost;
  const double n = static_cast<double>(positions), memory = static_cast<double>(config_.memory.length);
  const Tensor q(nullptr, Dtype::f32, {1, positions, config_.heads, config_.key_size()}),
      k(nullptr, Dtype::f32, {1, config_.memory.length + positions, config_.heads, config_.key_size()});
  for (const auto& branch : attention_) cost.allowed_pairs += static_cast<double>(branch->pairs(q, k));
  cost.dense_pairs = static_cast<double>(config_.layers * config_.heads) * n * (memory + (n + 1) / 2);
  const double scores = config_.distance.table == DistanceTable::none ? 1.0 : 2.0;
  const double products =
      2.0 * (scores * static_cast<double>(config_.key_size()) + static_cast<double>(config_.value_size()));
  // Keys and values of the memory are projected as well, and their weights have a gradient.
  const double projected = static_cast<double>(config_.layers * config_.width * config_.heads) *
                           static_cast<double>(config_.key_size() + config_.value_size());
  cost.training_flops = 6.0 * static_cast<double>(parameters_.count()) * n + 4.0 * projected * memory +
                        3.0 * products * cost.allowed_pairs;
  return cost;
}

}  // namespace longstride
