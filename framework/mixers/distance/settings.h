// The recipe keys of attention with a distance term: `model.distance` with `model.memory`, or an entry of
// `model.mixers` that has both.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "framework/mixers/distance/config.h"
#include "framework/mixers/mixer_config.h"

namespace longstride {

constexpr std::int64_t longest_memory = 1 << 23;       // positions
constexpr std::int64_t most_key_rows = (1 << 24) - 1;  // memory and segment, as kernels/distance_attention takes

struct DistanceSettings final : MixerConfig {
  DistanceConfig distance;
  MemoryConfig memory;

  DistanceSettings() = default;
  DistanceSettings(DistanceConfig d, const MemoryConfig& m) : distance(std::move(d)), memory(m) {}
  const char* kind() const override { return "distance"; }
  std::unique_ptr<MixerConfig> clone() const override { return std::make_unique<DistanceSettings>(*this); }
  void visit(SettingsVisitor& v) override;
  void check(const MixerChecks& checks) const override;
  void check_training(const MixerChecks& checks) const override;
  std::unique_ptr<MixerFamily> make(const MixerForm& form, ParameterSet& parameters, StateSet& states) const override;
  bool remembers() const override { return memory.length > 0; }
  std::string problem_of_documents() const override;
  bool has_windows() const override { return true; }
  std::string problem_of_windows(const std::vector<std::int64_t>& of_layers, std::int64_t layers) const override;
};

// Without those of the memory, which the short form has in a section of its own.
void visit_distance(SettingsVisitor& v, DistanceConfig& c);
void visit_memory(SettingsVisitor& v, MemoryConfig& c);

}  // namespace longstride
