// The settings of a decoder, as a recipe's `model:` and the data's geometry give them.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "framework/layers/block_form.h"
#include "framework/mixers/distance/config.h"
#include "framework/mixers/mixer_list.h"
#include "framework/models/model_config.h"
#include "kernels/attention/pattern/pattern.h"

namespace longstride {

// Indices of the position tables: the attention pattern's (row = floor(i / stride), column = i mod stride), or the data
// itself (images: row, column, channel); or no tables at all.
enum class Positions : std::uint8_t { attention, data, none };

struct DecoderConfig : ModelConfig, BlockForm {
  const char* kind_name = "decoder";  // `model.kind`, which a recipe may also give by an earlier name (registry.cpp)
  std::int64_t vocabulary = 256;
  double embedding_dropout = 0;  // dropout rate of the first residual stream
  double output_dropout = 0;     // dropout rate of what the head reads
  Positions positions = Positions::attention;
  // The mixers of layers: a list, or its short form with one entry, `attention` or `distance` with `memory`.
  std::vector<MixerEntry> mixers;  // empty: the short form
  bool attention_given = false;    // in the recipe; otherwise `distance` or `mixers` is
  kernels::PatternConfig attention;
  bool attention_sink = false;  // learned, in every head of `attention`
  DistanceConfig distance;
  MemoryConfig memory;

  std::vector<MixerEntry> entries() const;  // the list, whatever form the recipe has
  // Every attention with a distance term, with its memory.
  struct WithDistance {
    DistanceConfig* distance;
    MemoryConfig* memory;
  };
  std::vector<WithDistance> with_distances();
  std::int64_t pattern_stride() const;  // the first pattern's, which `positions: attention` follows; 0: there is none

  bool tied_output = false;  // the output's weight is the token table
  bool output_bias = false;
  bool embedding_scale = false;  // tokens' embeddings and the start vector times sqrt(width)

  // True if block, embedding and output are the Sparse Transformer's, but for the tie.
  bool has_default_form() const {
    return norm == NormOrder::pre && activation == kernels::Activation::sigmoid_gelu && attention_bias &&
           feed_forward_bias && !output_bias && !embedding_scale;
  }

  // In schema.cpp.
  const char* kind() const override { return kind_name; }
  std::unique_ptr<Model> make_model() const override;
  // The state that layers share, and the maker of layers.
  std::unique_ptr<MixerFamily> make_mixers(ParameterSet& parameters, StateSet& states) const;
  void visit(SettingsVisitor& v) override;
  void check(SettingsChecker& check, std::int64_t sequence_ranks) const override;
  void check_short_form(SettingsChecker& check, std::int64_t sequence_ranks) const;
  void check_training(SettingsChecker& check) const override;
  double activation_bytes() const override;
  std::string summary() const override;
  std::vector<RecomputePolicy> recompute_policies() const override;
  std::vector<std::string> toy_overrides() const override;
  std::string problem_of_windows(const std::vector<std::int64_t>& of_layers) const override;
  bool remembers() const override;
  std::string problem_of_documents() const override;
  std::shared_ptr<ModelConfig> with_documents(const DocumentForm& changed) const override;
  // In evaluated_memory.cpp.
  EvaluatedMemory evaluated_memory() const override;
  std::shared_ptr<ModelConfig> with_memory(const EvaluatedMemory& changed) const override;
  std::shared_ptr<ModelConfig> for_streams_of(std::int64_t read) const override;
};

}  // namespace longstride
