// The recipe keys of attention with a pattern: `model.attention`, or an entry of `model.mixers`.
#pragma once
#include <memory>

#include "framework/mixers/mixer_config.h"
#include "kernels/attention/pattern/pattern.h"

namespace longstride {

struct AttentionHeads {
  std::int64_t key_heads = 0;  // of keys and values, which divide the heads; 0: as many
  bool sink = false;           // every head has a learned one
  std::int64_t labels = 0;     // vectors of distances, clipped there, are added to keys; 0: none
};

struct AttentionConfig final : MixerConfig {
  kernels::PatternConfig pattern;
  AttentionHeads of_heads;

  AttentionConfig() = default;
  explicit AttentionConfig(kernels::PatternConfig c, const AttentionHeads& heads = {})
      : pattern(std::move(c)), of_heads(heads) {}
  const char* kind() const override { return "attention"; }
  std::unique_ptr<MixerConfig> clone() const override { return std::make_unique<AttentionConfig>(*this); }
  bool has_global_rows() const override { return true; }
  void set_direction(kernels::Direction direction) override { pattern.direction = direction; }
  void visit(SettingsVisitor& v) override;
  void check(const MixerChecks& checks) const override;
  void check_training(const MixerChecks& checks) const override;
  std::unique_ptr<MixerFamily> make(const MixerForm& form, ParameterSet& parameters, StateSet& states) const override;
  std::int64_t stride() const override { return pattern.stride; }
  std::string problem_of_documents() const override { return {}; }
};

// True if some part of the pattern reads a key of the recipe.
using ReadsKey = bool (*)(kernels::PartKind);
bool any_part(const kernels::PatternConfig& c, ReadsKey reads);

const Choices<kernels::PartKind>& part_names();  // in recipes

// The pattern with what all rows see of global ones: the first keys, or blocks of its lists.
kernels::PatternConfig with_global(kernels::PatternConfig pattern, const GlobalRows& global);

}  // namespace longstride
