// Layers of a scan share nothing but their settings.
#pragma once
#include <memory>

#include "framework/mixers/mixer_config.h"
#include "framework/mixers/scan/mixer.h"

namespace longstride {

class ScanFamily final : public MixerFamily {
 public:
  ScanFamily(const MixerForm& form, const ScanSettings& settings);

  std::shared_ptr<const Mixer> layer(ParameterSet& parameters, StateSet& states,
                                     const LayerPlace& place) const override;

 private:
  ScanMixerConfig config_;
};

}  // namespace longstride
