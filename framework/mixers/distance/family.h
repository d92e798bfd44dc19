// What the layers of a model with distance attention share: parameters of the distances, the count of what rows
// remember, and the windows.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "framework/layers/block_form.h"
#include "framework/mixers/distance/mixer.h"

namespace longstride {

class DistanceFamily final : public MixerFamily {
 public:
  // Declares the shared parameters and states; `segment` is the model's context.
  DistanceFamily(const BlockForm& form, std::int64_t segment, const DistanceConfig& distance,
                 const MemoryConfig& memory, ParameterSet& parameters, StateSet& states);

  std::shared_ptr<const Mixer> layer(ParameterSet& parameters, StateSet& states,
                                     const LayerPlace& place) const override;
  void end_step(Context& ctx, std::int64_t positions) const override { remembered_->add(ctx, positions); }
  std::vector<std::string> auxiliary_losses() const override;
  bool set_windows(const std::vector<std::int64_t>& of_layers) override;

 private:
  DistanceShape shape() const;

  BlockForm form_;
  std::int64_t segment_;
  DistanceConfig distance_;
  MemoryConfig memory_;
  SharedDistance shared_;
  std::shared_ptr<const RememberedPositions> remembered_;
  std::shared_ptr<Windows> windows_;
};

}  // namespace longstride
