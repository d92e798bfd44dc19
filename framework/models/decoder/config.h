// The settings of a decoder, as a recipe's `model:` and the data's geometry give them.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "framework/mixers/distance/config.h"
#include "framework/models/stack_config.h"

namespace longstride {

struct DecoderConfig : StackConfig {
  const char* kind_name = "decoder";  // `model.kind`, which a recipe may also give by an earlier name (registry.cpp)
  // The short form of a list of mixers may also be `distance` with `memory`.
  DistanceConfig distance;
  MemoryConfig memory;

  std::vector<MixerEntry> entries() const override;
  std::shared_ptr<StackConfig> clone() const override { return std::make_shared<DecoderConfig>(*this); }
  // Every attention with a distance term, with its memory.
  struct WithDistance {
    DistanceConfig* distance;
    MemoryConfig* memory;
  };
  std::vector<WithDistance> with_distances();

  // True if block, embedding and output are the Sparse Transformer's, but for the tie.
  bool has_default_form() const {
    return norm == NormOrder::pre && activation == kernels::Activation::sigmoid_gelu && attention_bias &&
           feed_forward_bias && !output_bias && !embedding_scale && !adaptive.given();
  }

  // In schema.cpp.
  const char* kind() const override { return kind_name; }
  bool reads_tokens() const override { return true; }
  std::unique_ptr<Model> make_model() const override;
  void visit(SettingsVisitor& v) override;
  void check(SettingsChecker& check, std::int64_t sequence_ranks) const override;
  void check_training(SettingsChecker& check) const override;
  std::vector<std::string> toy_overrides() const override;
  std::string problem_in_python() const override;
  // In evaluated_memory.cpp.
  EvaluatedMemory evaluated_memory() const override;
  std::shared_ptr<ModelConfig> with_memory(const EvaluatedMemory& changed) const override;
  std::shared_ptr<ModelConfig> for_streams_of(std::int64_t read) const override;
};

}  // namespace longstride
