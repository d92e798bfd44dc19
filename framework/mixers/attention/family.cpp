#include "framework/mixers/attention/family.h"

#include "kernels/attention/pattern/random_blocks.h"

namespace longstride {

// Layers go through the parts of an interleaved pattern as they follow one another in the family.
std::shared_ptr<const Mixer> AttentionFamily::layer(ParameterSet& parameters, StateSet& /*states*/,
                                                    const LayerPlace& place) const {
  const BlockForm& block = form_.block;
  const double deviation = block.deviation(static_cast<double>(block.width));
  AttentionMixerConfig config;
  config.width = block.width;
  config.heads = form_.heads;
  config.key_heads = heads_.key_heads;
  config.key_size = block.key_size();
  config.value_size = block.value_size();
  config.weight_deviation = deviation;
  config.output_deviation = block.shrink() * deviation;
  config.label_deviation = block.deviation_or(block.init_deviations.distance_table, static_cast<double>(block.width));
  config.biased = block.attention_bias;
  config.output_biased = block.attention_bias && form_.output_bias;
  config.sink = heads_.sink;
  config.labels = heads_.labels;
  config.transform = block.transform();
  config.segment = form_.segment;
  if (block.global.added > 0 || !kernels::has_lists(plans_->pattern(), 0, form_.heads)) config.global = block.global;
  return std::make_shared<AttentionMixer>(parameters, place.name, config, plans_, place.ordinal);
}

}  // namespace longstride
