#include "framework/models/decoder/decoder.h"

#include <cmath>

#include "framework/core/errors.h"

namespace longstride {

Decoder::Decoder(const DecoderConfig& config)
    : config_(config),
      plans_(std::make_shared<AttentionPlans>(config.attention, config.heads)),
      trunk_(config, parameters_,
             [this](std::int64_t layer, const std::string& name) { return make_attention(layer, name); }) {}

std::shared_ptr<const AttentionMixer> Decoder::make_attention(std::int64_t layer, const std::string& name) {
  const double deviation = config_.deviation(static_cast<double>(config_.width));
  AttentionMixerConfig attention;
  attention.width = config_.width;
  attention.heads = config_.heads;
  attention.key_size = config_.key_size();
  attention.value_size = config_.value_size();
  attention.weight_deviation = deviation;
  attention.output_deviation = config_.shrink() * deviation;
  attention.biased = config_.attention_bias;
  attention.transform = {config_.query_key_norm, config_.rotary_base};
  attention_.push_back(std::make_shared<AttentionMixer>(parameters_, name, attention, plans_, layer));
  return attention_.back();
}

void Decoder::check_group(int ranks) const {
  if (config_.heads % ranks != 0)
    throw user_error("parallel.sequence_ranks is {}, which does not divide model.heads, {}; choose a divisor", ranks,
                     config_.heads);
  if (config_.context % ranks != 0)
    throw user_error("parallel.sequence_ranks is {}, which does not divide data.context, {}; choose a divisor", ranks,
                     config_.context);
}

void Decoder::losses(Context& ctx, const Batch& batch, const Tensor& losses) const {
  trunk_.losses(ctx, batch, losses);
}

void Decoder::loss_and_gradients(Context& ctx, const Batch& batch, double scale, const Tensor& losses) const {
  trunk_.loss_and_gradients(ctx, batch, scale, losses);
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
