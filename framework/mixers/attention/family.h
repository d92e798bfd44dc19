// The plans that layers of attention with one pattern share.
#pragma once
#include <memory>

#include "framework/mixers/attention/config.h"
#include "framework/mixers/attention/mixer.h"
#include "framework/mixers/mixer_config.h"

namespace longstride {

class AttentionFamily final : public MixerFamily {
 public:
  AttentionFamily(const MixerForm& form, const kernels::PatternConfig& pattern, const AttentionHeads& heads)
      : form_(form), heads_(heads) {
    if (heads_.key_heads == 0) heads_.key_heads = form.heads;
    plans_ = std::make_shared<AttentionPlans>(pattern, form.heads, heads_.key_heads);
  }

  std::shared_ptr<const Mixer> layer(ParameterSet& parameters, StateSet& states,
                                     const LayerPlace& place) const override;

 private:
  MixerForm form_;
  AttentionHeads heads_;  // with key heads
  std::shared_ptr<const AttentionPlans> plans_;
};

}  // namespace longstride
