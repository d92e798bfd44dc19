// The mixers of a model's layers: `model.mixers` of a recipe, a cycle over the layers. An entry takes one or several
// layers in a row, and has one mixer or several whose heads are side by side.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "framework/mixers/mixer_config.h"

namespace longstride {

// A mixer's settings by value.
class MixerItem {
 public:
  MixerItem() : config_(mixer_kinds().front()()) {}
  explicit MixerItem(std::unique_ptr<MixerConfig> config) : config_(std::move(config)) {}
  MixerItem(const MixerItem& other) : heads(other.heads), config_(other.config_->clone()) {}
  MixerItem(MixerItem&&) = default;
  MixerItem& operator=(const MixerItem& other) { return *this = MixerItem(other); }
  MixerItem& operator=(MixerItem&&) = default;

  MixerConfig& config() { return *config_; }
  const MixerConfig& config() const { return *config_; }
  void visit(SettingsVisitor& v);

  std::int64_t heads = 0;  // 0: all of the model's

 private:
  std::unique_ptr<MixerConfig> config_;
};

struct MixerEntry {
  std::int64_t layers = 1;        // in a row
  std::vector<MixerItem> beside;  // at least one
};

// `direction` is the model's.
void visit_mixers(SettingsVisitor& v, const std::string& key, std::vector<MixerEntry>& entries,
                  kernels::Direction direction = kernels::Direction::past);
// Heads that do not add up, entries beyond the last layer, and every mixer's own checks.
void check_mixers(SettingsChecker& check, const std::vector<MixerEntry>& entries, const BlockForm& form,
                  std::int64_t segment, std::int64_t sequence_ranks);
void check_training_of_mixers(SettingsChecker& check, const std::vector<MixerEntry>& entries, const BlockForm& form,
                              std::int64_t segment);

// The families of all entries, as one for all layers of a model.
class MixerCycle final : public MixerFamily {
 public:
  MixerCycle(const std::vector<MixerEntry>& entries, const BlockForm& form, std::int64_t segment, bool documents,
             ParameterSet& parameters, StateSet& states);

  std::shared_ptr<const Mixer> layer(ParameterSet& parameters, StateSet& states,
                                     const LayerPlace& place) const override;
  void end_step(Context& ctx, std::int64_t positions) const override;
  std::vector<std::string> auxiliary_losses() const override { return losses_; }
  void place_losses(const std::vector<std::string>& all) override { losses_ = all; }
  bool set_windows(const std::vector<std::int64_t>& of_layers) override;

 private:
  struct Entry {
    std::int64_t first = 0, layers = 1;  // in the cycle
    std::vector<std::unique_ptr<MixerFamily>> families;
  };
  std::vector<Entry> entries_;
  std::int64_t length_ = 0;  // layers of the cycle
  std::vector<std::string> losses_;
};

}  // namespace longstride
