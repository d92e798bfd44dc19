// The settings of a model of one Stack (framework/layers/stack.h), its two ends and its mixers, as a recipe's `model:`
// and the data's geometry give them. Kinds differ in the direction that positions look, and in what they add.
#pragma once
#include <fmt/format.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "framework/layers/block_form.h"
#include "framework/layers/token_table.h"
#include "framework/mixers/attention/config.h"
#include "framework/mixers/mixer_list.h"
#include "framework/models/model_config.h"
#include "kernels/attention/pattern/pattern.h"

namespace longstride {

// Indices of the position tables: the attention pattern's (row = floor(i / stride), column = i mod stride), the data
// itself (images: row, column, channel), or one row per position of the context; or no tables at all.
enum class Positions : std::uint8_t { attention, data, learned, none };

struct StackConfig : ModelConfig, BlockForm {
  double embedding_dropout = 0;  // dropout rate of the first residual stream
  double output_dropout = 0;     // dropout rate of what the head reads
  Positions positions = Positions::attention;
  // The mixers of layers: a list, or its short form with one entry, `attention`.
  std::vector<MixerEntry> mixers;  // empty: the short form
  bool attention_given = false;    // in the recipe
  kernels::PatternConfig attention;
  AttentionHeads attention_heads;

  Bands adaptive;            // bands of the vocabulary, at both ends
  bool tied_output = false;  // the output's weight is the token table
  bool output_bias = false;
  bool embedding_scale = false;  // tokens' embeddings and the start vector times sqrt(width)

  TableForm table() const;                          // the token table, without the head's clusters
  virtual std::vector<MixerEntry> entries() const;  // the list, whatever form the recipe has
  virtual std::shared_ptr<StackConfig> clone() const = 0;
  std::int64_t pattern_stride() const;  // the first pattern's, which `positions: attention` follows; 0: there is none
  // The state that layers share, and the maker of layers.
  std::unique_ptr<MixerFamily> make_mixers(ParameterSet& parameters, StateSet& states) const;

  void check_training(SettingsChecker& check) const override;
  double activation_bytes() const override;
  std::string summary() const override;
  std::vector<RecomputePolicy> recompute_policies() const override;
  std::string problem_of_windows(const std::vector<std::int64_t>& of_layers) const override;
  bool remembers() const override;
  std::string problem_of_documents() const override;
  std::shared_ptr<ModelConfig> with_documents(const DocumentForm& changed) const override;
  std::vector<std::string> overrides_for_rows(std::int64_t row) const override;

 protected:
  // The keys that all kinds have: those before the mixers, the short form with a pattern, `mixers`, and `recompute`.
  void visit_blocks(SettingsVisitor& v);
  // True if the recipe has the section.
  bool visit_attention_section(SettingsVisitor& v, bool written);
  void visit_rest(SettingsVisitor& v);
  // Conditions between keys of the blocks; then those of mixers and positions. short_form() checks what is no list.
  void check_blocks(SettingsChecker& check) const;
  void check_all_mixers(SettingsChecker& check, std::int64_t sequence_ranks,
                        const std::function<void()>& short_form) const;
  MixerForm form_of_all() const { return {*this, heads, context, true, ""}; }  // the short form's
  // The overrides of sizes and dropouts, and of a list, which is replaced as a whole: then the second is true.
  std::pair<std::vector<std::string>, bool> toy_sizes() const;
  std::vector<std::string> toy_pattern() const;
};

// A setting of `model:` as an override.
template <class Value>
std::string model_override(const char* key, const Value& value) {
  return fmt::format("model.{}={}", key, value);
}

}  // namespace longstride
