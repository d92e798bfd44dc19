// The recipe keys of a model of one Stack: their allowed values, and the conditions that combine several keys.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "framework/mixers/attention/config.h"
#include "framework/models/stack_config.h"

namespace longstride {
namespace {

namespace sizes {
constexpr Range heads{1, 4096, false, false, "a positive whole number"};
constexpr Range ratio{0, 64, true, false, "a number above 0"};
constexpr Range rotary_base{0, 1e12, false, false, "0 (no rotation) or a number above 1"};
}  // namespace sizes

void visit_form(SettingsVisitor& v, StackConfig& c) {
  using kernels::Activation;
  v.choice("norm", c.norm, Need::optional, Choices<NormOrder>{{"pre", NormOrder::pre}, {"post", NormOrder::post}});
  v.choice("activation", c.activation, Need::optional,
           Choices<Activation>{{"sigmoid_gelu", Activation::sigmoid_gelu},
                               {"relu", Activation::relu},
                               {"gelu", Activation::gelu},
                               {"geglu", Activation::geglu}});
  v.field("attention_bias", c.attention_bias, Need::optional);
  v.field("feed_forward_bias", c.feed_forward_bias, Need::optional);
  v.field("tied_output", c.tied_output, Need::optional);
  v.field("output_bias", c.output_bias, Need::optional);
  v.field("embedding_scale", c.embedding_scale, Need::optional);
}

const Choices<Recompute>& recompute_names() {
  static const Choices<Recompute> names = {{"none", Recompute::none},
                                           {"selective", Recompute::selective},
                                           {"block", Recompute::block},
                                           {"attention_and_feed_forward", Recompute::attention_and_feed_forward},
                                           {"automatic", Recompute::automatic}};
  return names;
}

const char* what_is_kept(Recompute recompute) {
  switch (recompute) {
    case Recompute::none:
      return "everything is kept";
    case Recompute::selective:
      return "keeps the residual stream between layers and attention's output and log-sum-exp";
    case Recompute::block:
      return "keeps the residual stream between layers";
    default:
      return "keeps the residual stream between branches";
  }
}

void visit_deviations(SettingsVisitor& v, InitDeviations& c) {
  v.field("embedding", c.embedding, Need::optional, ranges::not_negative_real);
  v.field("distance_table", c.distance_table, Need::optional, ranges::not_negative_real);
}

bool is_whole(double value) { return std::round(value) >= 1 && std::abs(value - std::round(value)) <= 1e-6; }

void check_key_size(SettingsChecker& check, const StackConfig& m) {
  if (!check.none_in({"model.width", "model.heads", "model.key_ratio"})) return;
  const double key_size = m.key_ratio * static_cast<double>(m.width) / static_cast<double>(m.heads);
  if (!is_whole(key_size))
    check.refuse("model.key_ratio",
                 "model.key_ratio is {}, which makes keys of {:g} elements per head (key_ratio * {} / {}); choose one "
                 "that makes a whole number",
                 m.key_ratio, key_size, m.width, m.heads);
  else if (m.rotary_base > 0 && m.key_size() % 2 != 0 && check.none_in({"model.rotary_base"}))
    check.refuse("model.rotary_base",
                 "model.rotary_base is {}, which rotates pairs of a key's elements, but keys have {}; choose heads and "
                 "key_ratio that make an even number",
                 m.rotary_base, m.key_size());
}

// Scans without features have no use for what attention does to queries and keys.// Scans without features have no use
// for what attention does to queries and keys.
void check_transforms(SettingsChecker& check, const StackConfig& m) {
  const auto transforms = [](const MixerItem& item) { return item.config().transforms(); };
  for (const MixerEntry& entry : m.entries())
    if (std::any_of(entry.beside.begin(), entry.beside.end(), transforms)) return;
  if (m.rotary_base > 0 && check.none_in({"model.rotary_base"}))
    check.refuse(
        "model.rotary_base",
        "model.rotary_base is {}, but only attention, and scans with features, rotate queries and keys; remove "
        "it",
        m.rotary_base);
  if (m.query_key_norm && check.none_in({"model.query_key_norm"}))
    check.refuse("model.query_key_norm",
                 "model.query_key_norm is true, but only attention, and scans with features, have it; remove it");
}

// Position tables follow the stride of a pattern.
void check_positions(SettingsChecker& check, const StackConfig& m) {
  if (check.none_in({"model.positions", "data.kind", "data.context"}) && m.positions == Positions::data &&
      m.geometry.rows == 0)
    check.refuse("model.positions",
                 "model.positions is data, but only pictures have rows, columns and channels; use {}",
                 m.pattern_stride() == 0 ? "none" : "attention");
  const bool learned = m.positions == Positions::learned;
  if ((learned || (m.positions == Positions::attention && m.pattern_stride() > 0)) && m.remembers() &&
      check.none_in({"model.positions", "model.mixers"}))
    check.refuse("model.positions",
                 "model.positions is {}, whose tables end with data.context, but layers that remember read on; set "
                 "model.positions: none",
                 learned ? "learned" : "attention");
  if (m.positions == Positions::attention && m.pattern_stride() == 0 &&
      check.none_in({"model.positions", "model.attention", "model.distance", "model.mixers"}))
    check.refuse("model.positions",
                 "model.positions is attention, whose tables follow the stride of a pattern, but no layer has one; set "
                 "model.positions: none");
}

}  // namespace

std::unique_ptr<MixerFamily> StackConfig::make_mixers(ParameterSet& parameters, StateSet& states) const {
  return std::make_unique<MixerCycle>(entries(), *this, context, documents.separate, parameters, states);
}

TableForm StackConfig::table() const {
  const auto fan_in = static_cast<double>(width);
  return {.vocabulary = vocabulary,
          .width = width,
          .deviation = deviation_or(init_deviations.embedding, fan_in),
          .bands = adaptive,
          .projection_deviation = deviation(fan_in)};
}

std::vector<MixerEntry> StackConfig::entries() const {
  if (!mixers.empty()) return mixers;
  std::vector<MixerEntry> one(1);
  one.front().beside.emplace_back(std::make_unique<AttentionConfig>(attention, attention_heads));
  return one;
}

std::int64_t StackConfig::pattern_stride() const {
  for (const MixerEntry& entry : entries())
    for (const MixerItem& item : entry.beside)
      if (item.config().stride() > 0) return item.config().stride();
  return 0;
}

bool StackConfig::remembers() const {
  for (const MixerEntry& entry : entries())
    for (const MixerItem& item : entry.beside)
      if (item.config().remembers()) return true;
  return false;
}

std::string StackConfig::problem_of_documents() const {
  for (const MixerEntry& entry : entries())
    for (const MixerItem& item : entry.beside)
      if (const std::string problem = item.config().problem_of_documents(); !problem.empty()) return problem;
  return {};
}

std::shared_ptr<ModelConfig> StackConfig::with_documents(const DocumentForm& changed) const {
  if (changed.separate && !problem_of_documents().empty()) return ModelConfig::with_documents(changed);
  auto config = clone();
  config->documents = changed;
  return config;
}

void StackConfig::visit_blocks(SettingsVisitor& v) {
  v.field("layers", layers, Need::required, ranges::layers);
  v.field("width", width, Need::required, ranges::width);
  v.field("heads", heads, Need::required, sizes::heads);
  v.field("key_ratio", key_ratio, Need::optional, sizes::ratio);
  v.field("feed_forward_ratio", feed_forward_ratio, Need::optional, sizes::ratio);
  v.field("dropout", dropout, Need::optional, ranges::fraction);
  v.field("embedding_dropout", embedding_dropout, Need::optional, ranges::fraction);
  v.field("inner_dropout", inner_dropout, Need::optional, ranges::fraction);
  v.field("output_dropout", output_dropout, Need::optional, ranges::fraction);
  v.choice("positions", positions, Need::optional,
           Choices<Positions>{{"attention", Positions::attention},
                              {"data", Positions::data},
                              {"learned", Positions::learned},
                              {"none", Positions::none}});
  v.field("rotary_base", rotary_base, Need::optional, sizes::rotary_base);
  v.field("query_key_norm", query_key_norm, Need::optional);
  v.choice("init", init, Need::optional,
           Choices<InitReading>{{"variance", InitReading::variance}, {"deviation", InitReading::deviation}});
  v.field("init_deviation", init_deviation, Need::optional, ranges::not_negative_real);
  v.section("init_deviations", Need::optional, init_deviations.given(), [&] { visit_deviations(v, init_deviations); });
  visit_form(v, *this);
}

bool StackConfig::visit_attention_section(SettingsVisitor& v, bool written) {
  bool found = false;
  AttentionConfig pattern(attention, attention_heads);
  if (v.reads() && !attention_given) pattern.set_direction(direction);
  v.section("attention", Need::optional, written, [&] {
    found = true;
    pattern.visit(v);
  });
  if (v.reads()) attention = pattern.pattern, attention_heads = pattern.of_heads, attention_given = found;
  return found;
}

void StackConfig::visit_rest(SettingsVisitor& v) {
  visit_mixers(v, "mixers", mixers, direction);
  v.choice("recompute", recompute, Need::optional, recompute_names());
}

void StackConfig::check_blocks(SettingsChecker& check) const {
  if (check.none_in({"model.width", "model.heads"}) && width % heads != 0)
    check.refuse("model.heads", "model.heads is {}, but must divide model.width, {}", heads, width);
  if (check.none_in({"model.rotary_base"}) && rotary_base > 0 && rotary_base <= 1)
    check.refuse("model.rotary_base", "model.rotary_base is {}, but must be 0 (no rotation) or a number above 1",
                 rotary_base);
  check_key_size(check, *this);
  const double inner = feed_forward_ratio * static_cast<double>(width);
  if (check.none_in({"model.feed_forward_ratio", "model.width"}) && !is_whole(inner))
    check.refuse("model.feed_forward_ratio",
                 "model.feed_forward_ratio is {}, which makes an inner width of {:g}; choose one that makes a whole "
                 "number",
                 feed_forward_ratio, inner);
}

void StackConfig::check_all_mixers(SettingsChecker& check, std::int64_t sequence_ranks,
                                   const std::function<void()>& short_form) const {
  if (!mixers.empty())
    check_mixers(check, mixers, *this, context, sequence_ranks);
  else
    short_form();
  check_positions(check, *this);
  if (check.none_in({"model.mixers"})) check_transforms(check, *this);
  if (check.none_in({"model.heads", "parallel.sequence_ranks"}) && heads % sequence_ranks != 0)
    check.refuse("parallel.sequence_ranks", "parallel.sequence_ranks is {}, but must divide model.heads, {}",
                 sequence_ranks, heads);
}

void StackConfig::check_training(SettingsChecker& check) const {
  const std::pair<const char*, double> dropouts[] = {{"model.dropout", dropout},
                                                     {"model.embedding_dropout", embedding_dropout},
                                                     {"model.inner_dropout", inner_dropout},
                                                     {"model.output_dropout", output_dropout}};
  for (const auto& [key, p] : dropouts)
    if (check.none_in({key}) && static_cast<float>(p) == 1.0F)
      check.refuse(key, "{} is {}, which is 1 in fp32; set {}: 0.25", key, p, key);
  if (!mixers.empty()) return check_training_of_mixers(check, mixers, *this, context);
  if (attention_given)
    AttentionConfig(attention, attention_heads).check_training({check, "model.attention", "", form_of_all()});
}

// The problem of the first mixer that has windows, or else why none has.
std::string StackConfig::problem_of_windows(const std::vector<std::int64_t>& of_layers) const {
  std::string problem;
  for (const MixerEntry& entry : entries())
    for (const MixerItem& item : entry.beside) {
      problem = item.config().problem_of_windows(of_layers, layers);
      if (item.config().has_windows()) return problem;
    }
  return problem;
}

double StackConfig::activation_bytes() const {
  const std::int64_t inner = kernels::inputs_of(activation) * inner_width();
  return static_cast<double>(inner + 4 * width) * sizeof(float) * static_cast<double>(layers);
}

std::string StackConfig::summary() const {
  return fmt::format("{} layers, width {}, {} heads, keys of {}, inner width {}", layers, width, heads, key_size(),
                     inner_width());
}

std::vector<RecomputePolicy> StackConfig::recompute_policies() const {
  std::vector<Recompute> candidates = {recompute};
  if (recompute == Recompute::automatic) candidates = {Recompute::none, Recompute::selective, Recompute::block};
  std::vector<RecomputePolicy> out;
  for (const auto& [name, value] : recompute_names()) {
    if (std::find(candidates.begin(), candidates.end(), value) == candidates.end()) continue;
    auto config = clone();
    config->recompute = value;
    out.push_back({name, what_is_kept(value), std::move(config)});
  }
  return out;
}

std::pair<std::vector<std::string>, bool> StackConfig::toy_sizes() const {
  const bool small_pictures = geometry.rows == 32;
  std::vector<std::string> out = {model_override("layers", small_pictures ? 4 : 2), model_override("width", 64),
                                  model_override("heads", small_pictures ? 2 : 4),
                                  model_override("feed_forward_ratio", 2.0), model_override("dropout", 0.0)};
  for (const auto& [key, p] : {std::pair("embedding_dropout", embedding_dropout),
                               std::pair("inner_dropout", inner_dropout), std::pair("output_dropout", output_dropout)})
    if (p > 0) out.push_back(model_override(key, 0.0));
  if (mixers.empty()) return {out, false};
  std::int64_t cycle = 0;  // every entry needs a layer
  for (const MixerEntry& entry : mixers) cycle += entry.layers;
  out.front() = model_override("layers", cycle);
  return {out, true};
}

// Pictures keep their size and therefore their stride.
std::vector<std::string> StackConfig::toy_pattern() const {
  if (geometry.rows > 0) return {};
  std::vector<std::string> out;
  if (attention.stride > 0) out.push_back(model_override("attention.stride", attention.stride / 4));
  constexpr std::int64_t odd_window = 33;
  if (direction == kernels::Direction::both && attention.window > odd_window)
    out.push_back(model_override("attention.window", odd_window));
  if (any_part(attention, kernels::reads_summary)) out.push_back(model_override("attention.summary", 8));
  constexpr std::int64_t short_block = 16;
  if (any_part(attention, kernels::reads_block) && !any_part(attention, kernels::reads_random) &&
      attention.block > short_block)
    out.push_back(model_override("attention.block", short_block));
  if (attention.window > 64) out.push_back(model_override("attention.window", 9));
  if (any_part(attention, kernels::reads_shifts)) out.push_back(model_override("attention.shifts", "{0: 3, 1: 1}"));
  return out;
}

// A list of mixers is replaced as a whole, so it keeps its strides.
std::vector<std::string> StackConfig::overrides_for_rows(std::int64_t row) const {
  const std::int64_t mine = geometry.columns * geometry.channels;
  if (!attention_given || mine == 0 || attention.stride == 0 || attention.stride % mine != 0) return {};
  return {model_override("attention.stride", attention.stride / mine * row)};
}

}  // namespace longstride
