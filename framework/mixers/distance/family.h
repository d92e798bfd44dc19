// State that the layers of a model with distance attention share: parameters of the distances, the count of remembered
// positions, and the windows.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "framework/mixers/distance/mixer.h"
#include "framework/mixers/mixer_config.h"

namespace longstride {

class DistanceFamily final : public MixerFamily {
 public:
  // Declares the shared parameters and states.
  DistanceFamily(const MixerForm& form, const DistanceConfig& distance, const MemoryConfig& memory,
                 ParameterSet& parameters, StateSet& states);

  std::shared_ptr<const Mixer> layer(ParameterSet& parameters, StateSet& states,
                                     const LayerPlace& place) const override;
  void end_step(Context& ctx, std::int64_t positions) const override { remembered_->add(ctx, positions); }
  std::vector<std::string> auxiliary_losses() const override;
  void place_losses(const std::vector<std::string>& all) override { losses_ = all; }
  bool set_windows(const std::vector<std::int64_t>& of_layers) override;

 private:
  DistanceShape shape() const;

  std::int64_t place_of_loss(const std::string& name) const;

  MixerForm form_;
  DistanceConfig distance_;
  MemoryConfig memory_;
  SharedDistance shared_;
  std::shared_ptr<const RememberedPositions> remembered_;
  std::shared_ptr<Windows> windows_;
  std::vector<std::string> losses_;  // all names that the model has
};

}  // namespace longstride
