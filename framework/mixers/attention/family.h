// What the layers of a model with a pattern share: its plans.
#pragma once
#include <memory>

#include "framework/layers/block_form.h"
#include "framework/mixers/attention/mixer.h"

namespace longstride {

class AttentionFamily final : public MixerFamily {
 public:
  AttentionFamily(const BlockForm& form, std::int64_t segment, const kernels::PatternConfig& pattern)
      : form_(form), segment_(segment), plans_(std::make_shared<AttentionPlans>(pattern, form.heads)) {}

  std::shared_ptr<const Mixer> layer(ParameterSet& parameters, StateSet& states,
                                     const LayerPlace& place) const override;

 private:
  BlockForm form_;
  std::int64_t segment_;
  std::shared_ptr<const AttentionPlans> plans_;
};

}  // namespace longstride
