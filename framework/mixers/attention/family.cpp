#include "framework/mixers/attention/family.h"

namespace longstride {

std::shared_ptr<const Mixer> AttentionFamily::layer(ParameterSet& parameters, StateSet& /*states*/,
                                                    const LayerPlace& place) const {
  const double deviation = form_.deviation(static_cast<double>(form_.width));
  AttentionMixerConfig config;
  config.width = form_.width;
  config.heads = form_.heads;
  config.key_size = form_.key_size();
  config.value_size = form_.value_size();
  config.weight_deviation = deviation;
  config.output_deviation = form_.shrink() * deviation;
  config.biased = form_.attention_bias;
  config.transform = form_.transform();
  config.segment = segment_;
  return std::make_shared<AttentionMixer>(parameters, place.name, config, plans_, place.layer);
}

}  // namespace longstride
