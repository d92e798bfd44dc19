// Every key of a recipe, once: its name, where it goes, whether it must be there, and what it may be. A visitor walks
// the schema: the reader fills a Recipe from YAML, the writer prints the resolved recipe, the tests list the keys for
// docs/guide/recipes.md.
//
// A visitor has
//   section(key, need, given, f)                a map; f() visits its keys; given: there is something to write
//   field(key, value, need, range)             a value; need says whether it may be left out
//   choice(key, value, need, {{name, v}...})   an enumeration
//   list(key, values, need)                    of whole numbers or of parts; one alone needs no brackets
//   maps(key, values, need, f)                 a list of maps; f(visitor, value) visits the keys of one
//   reasons(key, pairs)                        a map from dotted keys of the recipe to sentences
#pragma once
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "launch/recipe/recipe.h"

namespace longstride {

enum class Need : std::uint8_t { required, optional };

// What a number may be, and how messages say it: "must be <text>", with the limit when the value is beyond it.
struct Range {
  double least = -std::numeric_limits<double>::infinity();
  double most = std::numeric_limits<double>::infinity();
  bool open_least = false, open_most = false;
  const char* text = "a number";
};

namespace ranges {
inline constexpr Range positive{1, 9e15, false, false, "a positive whole number"};
inline constexpr Range not_negative{0, 9e15, false, false, "0 or a positive whole number"};
inline constexpr Range positive_real{0, 1e12, true, false, "a number above 0"};
inline constexpr Range not_negative_real{0, 1e12, false, false, "0 or a positive number"};
inline constexpr Range fraction{0, 1, false, true, "a number from 0 up to, but not, 1"};
inline constexpr Range positions{1, 1 << 24, false, false, "a positive number of positions"};
// Beyond these nothing could be trained, and products of several would not fit 64 bits.
inline constexpr Range layers{1, 4096, false, false, "a positive whole number"};
inline constexpr Range width{1, 1 << 16, false, false, "a positive whole number"};
inline constexpr Range heads{1, 4096, false, false, "a positive whole number"};
inline constexpr Range ratio{0, 64, true, false, "a number above 0"};
inline constexpr Range rotary_base{0, 1e12, false, false, "0 (no rotation) or a number above 1"};
inline constexpr Range steps{1, 1e9, false, false, "a positive whole number"};
inline constexpr Range batch{1, 1 << 20, false, false, "a positive whole number"};
inline constexpr Range ranks{1, 4096, false, false, "a positive number of ranks"};
inline constexpr Range bucket{1, 1 << 30, false, false, "a positive number of gradients"};
inline constexpr Range micro_batch{0, 1 << 20, false, false, "0 or a positive whole number"};
}  // namespace ranges

template <class T>
using Choices = std::vector<std::pair<std::string, T>>;

inline const Choices<kernels::PartKind>& part_names() {
  using kernels::PartKind;
  static const Choices<PartKind> names = {{"dense", PartKind::dense},
                                          {"local", PartKind::local},
                                          {"column", PartKind::column},
                                          {"fixed_block", PartKind::fixed_block},
                                          {"fixed_summary", PartKind::fixed_summary}};
  return names;
}

template <class Visitor>
void visit_data(Visitor& v, DataConfig& c) {
  v.choice("kind", c.kind, Need::required,
           Choices<DataKind>{{"bytes", DataKind::bytes},
                             {"cifar10", DataKind::cifar10},
                             {"images", DataKind::images},
                             {"audio", DataKind::audio}});
  v.field("path", c.path, Need::required);
  v.field("context", c.context, Need::required, ranges::positions);
  v.field("cross_files", c.cross_files, Need::optional);
}

template <class Visitor>
void visit_attention(Visitor& v, kernels::PatternConfig& c) {
  using kernels::Integration;
  v.choice("integration", c.integration, Need::required,
           Choices<Integration>{{"interleaved", Integration::interleaved},
                                {"merged", Integration::merged},
                                {"multihead", Integration::multihead}});
  v.list("parts", c.parts, Need::required);
  v.field("stride", c.stride, Need::required, ranges::positions);
  v.field("window", c.window, Need::optional, ranges::not_negative);
  v.list("summary", c.summary, Need::optional);
  v.field("distinct_heads", c.distinct_heads, Need::optional);
  v.field("summary_inclusive", c.summary_inclusive, Need::optional);
}

template <class Visitor>
void visit_model(Visitor& v, SparseTransformerConfig& c) {
  std::string kind = "sparse_transformer";
  v.choice("kind", kind, Need::required, Choices<std::string>{{"sparse_transformer", "sparse_transformer"}});
  v.field("layers", c.layers, Need::required, ranges::layers);
  v.field("width", c.width, Need::required, ranges::width);
  v.field("heads", c.heads, Need::required, ranges::heads);
  v.field("key_ratio", c.key_ratio, Need::optional, ranges::ratio);
  v.field("feed_forward_ratio", c.feed_forward_ratio, Need::optional, ranges::ratio);
  v.field("dropout", c.dropout, Need::optional, ranges::fraction);
  v.choice(
      "positions", c.positions, Need::optional,
      Choices<Positions>{{"attention", Positions::attention}, {"data", Positions::data}, {"none", Positions::none}});
  v.field("rotary_base", c.rotary_base, Need::optional, ranges::rotary_base);
  v.field("query_key_norm", c.query_key_norm, Need::optional);
  v.choice("init", c.init, Need::optional,
           Choices<InitReading>{{"variance", InitReading::variance}, {"deviation", InitReading::deviation}});
  v.section("attention", Need::required, true, [&] { visit_attention(v, c.attention); });
  v.choice("recompute", c.recompute, Need::optional,
           Choices<Recompute>{{"none", Recompute::none},
                              {"block", Recompute::block},
                              {"attention_and_feed_forward", Recompute::attention_and_feed_forward}});
}

template <class Visitor>
void visit_stage(Visitor& v, Stage& c) {
  v.field("until", c.until, Need::required, ranges::steps);
  v.field("context", c.context, Need::required, ranges::positions);
}

template <class Visitor>
void visit_train(Visitor& v, TrainConfig& c) {
  v.field("steps", c.steps, Need::required, ranges::steps);
  v.field("global_batch", c.global_batch, Need::required, ranges::batch);
  v.field("micro_batch", c.micro_batch, Need::optional, ranges::micro_batch);
  v.field("lr", c.lr, Need::required, ranges::positive_real);
  v.field("warmup", c.warmup, Need::optional, ranges::not_negative);
  v.field("beta1", c.beta1, Need::optional, ranges::fraction);
  v.field("beta2", c.beta2, Need::optional, ranges::fraction);
  v.field("epsilon", c.epsilon, Need::optional, ranges::positive_real);
  v.field("weight_decay", c.weight_decay, Need::optional, ranges::not_negative_real);
  v.field("clip", c.clip, Need::optional, ranges::not_negative_real);
  v.field("ema", c.ema, Need::optional, ranges::fraction);
  v.choice("precision", c.precision, Need::optional,
           Choices<Precision>{{"automatic", Precision::automatic},
                              {"fp32", Precision::fp32},
                              {"bf16", Precision::bf16},
                              {"fp16", Precision::fp16}});
  v.choice(
      "residual", c.residual, Need::optional,
      Choices<Precision>{{"automatic", Precision::automatic}, {"fp32", Precision::fp32}, {"bf16", Precision::bf16}});
  v.field("seed", c.seed, Need::optional, ranges::not_negative);
  v.field("graph", c.graph, Need::optional);
  v.field("log_every", c.log_every, Need::optional, ranges::positive);
  v.field("checkpoint_every", c.checkpoint_every, Need::optional, ranges::not_negative);
  v.field("keep", c.keep, Need::optional, ranges::not_negative);
  v.field("mirror", c.mirror, Need::optional);
  v.field("evaluate_every", c.evaluate_every, Need::optional, ranges::not_negative);
  v.field("evaluate_windows", c.evaluate_windows, Need::optional, ranges::not_negative);
  v.field("hang_seconds", c.hang_seconds, Need::optional, ranges::not_negative_real);
  v.maps("stages", c.stages, Need::optional, [](auto& visitor, Stage& stage) { visit_stage(visitor, stage); });
}

template <class Visitor>
void visit_optimizer(Visitor& v, TrainConfig& c) {
  v.choice("kind", c.optimizer, Need::optional,
           Choices<OptimizerKind>{{"adam", OptimizerKind::adam}, {"muon", OptimizerKind::muon}});
  v.field("shard", c.parallel.shard, Need::optional);
}

template <class Visitor>
void visit_parallel(Visitor& v, ParallelConfig& c) {
  v.field("context", c.context, Need::optional, ranges::ranks);
  v.choice("gradients", c.gradients, Need::optional,
           Choices<Precision>{{"automatic", Precision::automatic},
                              {"fp32", Precision::fp32},
                              {"bf16", Precision::bf16},
                              {"fp16", Precision::fp16}});
  v.field("bucket", c.bucket, Need::optional, ranges::bucket);
  v.choice("overlap", c.overlap, Need::optional,
           Choices<Overlap>{{"automatic", Overlap::automatic}, {"always", Overlap::always}, {"never", Overlap::never}});
}

template <class Visitor>
void visit_reproduces(Visitor& v, Reproduces& c) {
  v.field("table", c.table, Need::required, Range{1, 5, false, true, "one of the paper's tables, 1 to 4"});
  v.field("row", c.row, Need::required);
  v.field("bits_per_byte", c.bits_per_byte, Need::required, ranges::positive_real);
  v.field("parameters", c.parameters, Need::optional, ranges::not_negative_real);
  v.field("time_per_iteration", c.time_per_iteration, Need::optional, ranges::not_negative_real);
}

template <class Visitor>
void visit_recipe(Visitor& v, Recipe& r) {
  v.field("name", r.name, Need::required);
  v.section("reproduces", Need::optional, r.reproduces.table > 0, [&] { visit_reproduces(v, r.reproduces); });
  v.reasons("unpublished", r.unpublished);
  v.section("data", Need::required, true, [&] { visit_data(v, r.data); });
  v.section("model", Need::required, true, [&] { visit_model(v, r.model); });
  v.section("train", Need::required, true, [&] { visit_train(v, r.train); });
  v.section("optimizer", Need::optional, true, [&] { visit_optimizer(v, r.train); });
  v.section("parallel", Need::optional, true, [&] { visit_parallel(v, r.train.parallel); });
}

}  // namespace longstride
