#include "framework/mixers/distance/family.h"

#include <algorithm>

namespace longstride {

DistanceFamily::DistanceFamily(const BlockForm& form, std::int64_t segment, const DistanceConfig& distance,
                               const MemoryConfig& memory, ParameterSet& parameters, StateSet& states)
    : form_(form),
      segment_(segment),
      distance_(distance),
      memory_(memory),
      shared_(declare_shared_distance(parameters, shape(), distance)),
      remembered_(std::make_shared<RememberedPositions>(states, memory)),
      windows_(std::make_shared<Windows>(Windows{distance.window})) {}

DistanceShape DistanceFamily::shape() const {
  return {form_.width, form_.heads, form_.key_size(), form_.deviation(static_cast<double>(form_.width))};
}

std::shared_ptr<const Mixer> DistanceFamily::layer(ParameterSet& parameters, StateSet& states,
                                                   const LayerPlace& place) const {
  DistanceMixerConfig config;
  config.shape = shape();
  config.value_size = form_.value_size();
  config.output_deviation = form_.shrink() * config.shape.deviation;
  config.compress_deviation =
      form_.deviation(static_cast<double>(std::max<std::int64_t>(1, memory_.rate) * form_.width));
  config.biased = form_.attention_bias;
  config.transform = form_.transform();
  config.distance = distance_;
  config.memory = memory_;
  config.layer = place.layer;
  config.reconstruction_loss = distance_.span.loss > 0 ? 1 : 0;
  config.segment = segment_;
  return std::make_shared<DistanceMixer>(parameters, states, place.name, config, shared_, remembered_, windows_);
}

std::vector<std::string> DistanceFamily::auxiliary_losses() const {
  std::vector<std::string> names;
  if (distance_.span.loss > 0) names.emplace_back("span");
  if (memory_.learns_to_compress() && memory_.reconstruction > 0) names.emplace_back("reconstruction");
  return names;
}

bool DistanceFamily::set_windows(const std::vector<std::int64_t>& of_layers) {
  windows_->of_layers = of_layers.empty() ? distance_.window : of_layers;
  return true;
}

}  // namespace longstride
