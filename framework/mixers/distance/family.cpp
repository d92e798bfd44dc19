#include "framework/mixers/distance/family.h"

#include <algorithm>

namespace longstride {
namespace {

constexpr std::int64_t most_layers = 4096;  // layers of a model (ranges::layers)
constexpr const char *span_loss = "span", *reconstruction_loss = "reconstruction";

}  // namespace

DistanceFamily::DistanceFamily(const MixerForm& form, const DistanceConfig& distance, const MemoryConfig& memory,
                               ParameterSet& parameters, StateSet& states)
    : form_(form),
      distance_(distance),
      memory_(memory),
      shared_(declare_shared_distance(parameters, form.prefix, shape(), distance)),
      remembered_(std::make_shared<RememberedPositions>(states, form.prefix, memory)),
      windows_(std::make_shared<Windows>(Windows{distance.window, distance.longest_window})),
      losses_(auxiliary_losses()) {}

DistanceShape DistanceFamily::shape() const {
  const BlockForm& block = form_.block;
  const auto width = static_cast<double>(block.width);
  return {block.width, form_.heads, block.key_size(), block.deviation(width),
          block.deviation_or(block.init_deviations.distance_table, width)};
}

std::shared_ptr<const Mixer> DistanceFamily::layer(ParameterSet& parameters, StateSet& states,
                                                   const LayerPlace& place) const {
  const BlockForm& block = form_.block;
  DistanceMixerConfig config;
  config.shape = shape();
  config.value_size = block.value_size();
  config.output_deviation = block.shrink() * config.shape.deviation;
  config.compress_deviation =
      block.deviation(static_cast<double>(std::max<std::int64_t>(1, memory_.rate) * block.width));
  config.biased = block.attention_bias;
  config.output_biased = block.attention_bias && form_.output_bias;
  config.transform = block.transform();
  config.distance = distance_;
  config.memory = memory_;
  config.layer = place.layer;
  config.dropout_layer = static_cast<std::uint32_t>(place.layer + most_layers * place.slot);
  config.span_loss = place_of_loss(span_loss);
  config.reconstruction_loss = place_of_loss(reconstruction_loss);
  config.segment = form_.segment;
  config.documents = form_.documents;
  return std::make_shared<DistanceMixer>(parameters, states, place.name, config, shared_, remembered_, windows_);
}

std::int64_t DistanceFamily::place_of_loss(const std::string& name) const {
  return std::find(losses_.begin(), losses_.end(), name) - losses_.begin();
}

std::vector<std::string> DistanceFamily::auxiliary_losses() const {
  std::vector<std::string> names;
  if (distance_.span.loss > 0) names.emplace_back(span_loss);
  if (memory_.learns_to_compress() && memory_.reconstruction > 0) names.emplace_back(reconstruction_loss);
  return names;
}

bool DistanceFamily::set_windows(const std::vector<std::int64_t>& of_layers) {
  windows_->of_layers = of_layers.empty() ? distance_.window : of_layers;
  return true;
}

}  // namespace longstride
