#include "framework/mixers/scan/family.h"

namespace longstride {

ScanFamily::ScanFamily(const MixerForm& form, const ScanSettings& settings) {
  const BlockForm& block = form.block;
  config_.width = block.width;
  config_.heads = form.heads;
  config_.key_heads = settings.key_heads > 0 ? settings.key_heads : form.heads;
  config_.key_size = settings.key_size > 0 ? settings.key_size : block.key_size();
  config_.value_size = settings.value_size > 0 ? settings.value_size : block.value_size();
  config_.deviation = block.deviation(static_cast<double>(block.width));
  config_.output_deviation = block.shrink() * block.deviation(static_cast<double>(block.heads * config_.value_size));
  config_.biased = block.attention_bias;
  config_.output_biased = block.attention_bias && form.output_bias;
  config_.transform = block.transform();
  config_.segment = form.segment;
  config_.direction = block.direction;
  config_.scan = settings.resolved();
}

std::shared_ptr<const Mixer> ScanFamily::layer(ParameterSet& parameters, StateSet& states,
                                               const LayerPlace& place) const {
  constexpr std::int64_t most_layers = 4096;  // in a model (ranges::layers)
  ScanMixerConfig own = config_;
  own.layer = static_cast<std::uint32_t>(place.layer + most_layers * place.slot);
  return std::make_shared<ScanMixer>(parameters, states, place.name, own);
}

}  // namespace longstride
