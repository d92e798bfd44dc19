// The settings of a decoder, as a recipe's `model:` and the data's geometry give them.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "framework/mixers/distance/config.h"
#include "framework/models/model_config.h"
#include "kernels/activation/activation.h"
#include "kernels/attention/pattern/pattern.h"

namespace longstride {

// What backward computes again. selective: layers, except attention's outputs. automatic: the fastest that fits, which
// the planner chooses before training (framework/train/step/recompute_choice.h).
enum class Recompute : std::uint8_t { none, selective, block, attention_and_feed_forward, automatic };

// What the position tables are indexed by: the attention pattern (row = floor(i / stride), column = i mod
// stride), or the data itself (images: row, column, channel); or no tables at all.
enum class Positions : std::uint8_t { attention, data, none };

// How to read N(0, 0.125 / fan_in): as a variance (the released code) or a standard deviation.
enum class InitReading : std::uint8_t { variance, deviation };

// Whether a branch reads the normalised stream, or the stream is normalised after every branch.
enum class NormOrder : std::uint8_t { pre, post };

struct DecoderConfig : ModelConfig {
  const char* kind_name = "decoder";  // `model.kind`, which a recipe may also give by an earlier name (registry.cpp)
  std::int64_t vocabulary = 256;
  std::int64_t layers = 0;
  std::int64_t width = 0;
  std::int64_t heads = 0;
  double key_ratio = 1.0;           // key size per head = key_ratio * width / heads
  double feed_forward_ratio = 4.0;  // inner width = feed_forward_ratio * width
  double dropout = 0;               // of what branches give
  double embedding_dropout = 0;     // of the first residual stream
  double inner_dropout = 0;         // of what the activation of feed-forward branches gives
  double output_dropout = 0;        // of what the output's product reads
  Positions positions = Positions::attention;
  double rotary_base = 0;        // above 0: queries and keys are rotated by their position
  bool query_key_norm = false;   // queries and keys are divided by their root mean square
  bool attention_given = false;  // in the recipe; otherwise `distance` is
  kernels::PatternConfig attention;
  DistanceConfig distance;
  MemoryConfig memory;

  // The form of the blocks and of the two ends; the defaults are the Sparse Transformer's.
  NormOrder norm = NormOrder::pre;
  kernels::Activation activation = kernels::Activation::sigmoid_gelu;
  bool attention_bias = true;     // of the maps to queries, keys and values, and of the output projection
  bool feed_forward_bias = true;  // of both maps
  bool tied_output = false;       // the output's weight is the token table
  bool output_bias = false;
  bool embedding_scale = false;  // tokens' embeddings and the start vector times sqrt(width)

  Recompute recompute = Recompute::none;
  InitReading init = InitReading::variance;
  double init_deviation = 0;  // above 0: of every matrix and table, instead of the rule that `init` reads

  std::int64_t key_size() const {
    return static_cast<std::int64_t>(key_ratio * static_cast<double>(width) / static_cast<double>(heads) + 0.5);
  }
  std::int64_t value_size() const { return width / heads; }
  std::int64_t inner_width() const {
    return static_cast<std::int64_t>(feed_forward_ratio * static_cast<double>(width) + 0.5);
  }

  // The standard deviation of initial weights: 0.125 / fan_in, as a variance or as a deviation; or the recipe's own.
  double deviation(double fan_in) const;
  // The two projections that write to the residual stream start smaller, by 1 / sqrt(2 N) (section 5.2).
  double shrink() const;

  // Whether a block, embedding and output are the Sparse Transformer's, but for the tie.
  bool has_default_form() const {
    return norm == NormOrder::pre && activation == kernels::Activation::sigmoid_gelu && attention_bias &&
           feed_forward_bias && !output_bias && !embedding_scale;
  }

  // In schema.cpp.
  const char* kind() const override { return kind_name; }
  std::unique_ptr<Model> make_model() const override;
  void visit(SettingsVisitor& v) override;
  void check(SettingsChecker& check, std::int64_t sequence_ranks) const override;
  void check_training(SettingsChecker& check) const override;
  double activation_bytes() const override;
  std::string summary() const override;
  std::vector<RecomputePolicy> recompute_policies() const override;
  std::vector<std::string> toy_overrides() const override;
  std::string problem_of_windows(const std::vector<std::int64_t>& of_layers) const override;
  bool remembers() const override { return memory.length > 0; }
  // In evaluated_memory.cpp.
  EvaluatedMemory evaluated_memory() const override;
  std::shared_ptr<ModelConfig> with_memory(const EvaluatedMemory& changed) const override;
  std::shared_ptr<ModelConfig> for_streams_of(std::int64_t read) const override;
};

const Choices<kernels::PartKind>& part_names();  // in recipes

}  // namespace longstride
