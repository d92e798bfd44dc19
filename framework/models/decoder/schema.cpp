// The recipe keys of a decoder: their allowed values, and the conditions that combine several keys.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "framework/mixers/attention/config.h"
#include "framework/mixers/distance/settings.h"
#include "framework/models/decoder/decoder.h"

namespace longstride {
namespace {

namespace sizes {
constexpr Range heads{1, 4096, false, false, "a positive whole number"};
constexpr Range ratio{0, 64, true, false, "a number above 0"};
constexpr Range rotary_base{0, 1e12, false, false, "0 (no rotation) or a number above 1"};
}  // namespace sizes

void visit_form(SettingsVisitor& v, DecoderConfig& c) {
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

void check_key_size(SettingsChecker& check, const DecoderConfig& m) {
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

// Scans without features have no use for what attention does to queries and keys.
void check_transforms(SettingsChecker& check, const DecoderConfig& m) {
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

void check_mechanism(SettingsChecker& check, const DecoderConfig& m) {
  if (!m.mixers.empty() && (m.attention_given || m.distance.given))
    return check.refuse(
        "model.mixers",
        "model has both mixers and {0}, but must have one of them: {0} is the short form of a list with "
        "one entry; remove one",
        m.attention_given ? "attention" : "distance");
  if (m.attention_given && m.distance.given)
    check.refuse("model.distance",
                 "model has both attention, a pattern of the paper, and distance, attention with a distance term, but "
                 "must have one of them; remove every key of the other");
  else if (m.mixers.empty() && !m.attention_given && !m.distance.given &&
           check.none_in({"model.attention", "model.distance", "model.mixers"}))
    check.refuse("model",
                 "model has neither attention nor distance, but must have one of them: a pattern of the paper, or "
                 "attention with a distance term; or mixers, a list of both");
  if (m.memory.length == 0 || m.distance.given || !check.none_in({"model.memory", "model.mixers"})) return;
  check.refuse("model.memory", "{}",
               m.mixers.empty() ? "model.memory is read by attention with model.distance, which this recipe lacks; "
                                  "remove it, or set model.distance in place of model.attention"
                                : "model.memory belongs to model.distance; write it into its entry of model.mixers");
}

void check_deviations(SettingsChecker& check, DecoderConfig m) {
  const auto learned = [](const DecoderConfig::WithDistance& w) { return w.distance->table == DistanceTable::learned; };
  const std::vector<DecoderConfig::WithDistance> all = m.with_distances();
  if (m.init_deviations.distance_table == 0 || std::any_of(all.begin(), all.end(), learned) ||
      !check.none_in({"model.init_deviations", "model.distance", "model.mixers"}))
    return;
  check.refuse("model.init_deviations.distance_table",
               "model.init_deviations.distance_table is {}, but this model has no learned table of distances; remove "
               "it, or set {}: learned",
               m.init_deviations.distance_table,
               m.mixers.empty() ? "model.distance.table" : "table in an entry of model.mixers");
}

// Position tables follow the stride of a pattern.
void check_positions(SettingsChecker& check, const DecoderConfig& m) {
  if (check.none_in({"model.positions", "data.kind", "data.context"}) && m.positions == Positions::data &&
      m.geometry.rows == 0)
    check.refuse("model.positions",
                 "model.positions is data, but only pictures have rows, columns and channels; use {}",
                 m.pattern_stride() == 0 ? "none" : "attention");
  if (m.positions == Positions::attention && m.pattern_stride() > 0 && m.remembers() &&
      check.none_in({"model.positions", "model.mixers"}))
    check.refuse(
        "model.positions",
        "model.positions is attention, whose tables end with data.context, but layers that remember read on; set "
        "model.positions: none");
  if (m.positions == Positions::attention && m.pattern_stride() == 0 &&
      check.none_in({"model.positions", "model.attention", "model.distance", "model.mixers"}))
    check.refuse("model.positions",
                 "model.positions is attention, whose tables follow the stride of a pattern, which {} lacks; set "
                 "model.positions: none",
                 m.mixers.empty() ? "model.distance" : "model.mixers");
}

}  // namespace

std::unique_ptr<Model> DecoderConfig::make_model() const { return std::make_unique<Decoder>(*this); }

std::unique_ptr<MixerFamily> DecoderConfig::make_mixers(ParameterSet& parameters, StateSet& states) const {
  return std::make_unique<MixerCycle>(entries(), *this, context, documents.separate, parameters, states);
}

std::vector<MixerEntry> DecoderConfig::entries() const {
  if (!mixers.empty()) return mixers;
  std::vector<MixerEntry> one(1);
  if (distance.given)
    one.front().beside.emplace_back(std::make_unique<DistanceSettings>(distance, memory));
  else
    one.front().beside.emplace_back(std::make_unique<AttentionConfig>(attention, attention_sink));
  return one;
}

std::vector<DecoderConfig::WithDistance> DecoderConfig::with_distances() {
  std::vector<WithDistance> all;
  if (distance.given) all.push_back({&distance, &memory});
  for (MixerEntry& entry : mixers)
    for (MixerItem& item : entry.beside)
      if (auto* settings = dynamic_cast<DistanceSettings*>(&item.config()))
        all.push_back({&settings->distance, &settings->memory});
  return all;
}

std::int64_t DecoderConfig::pattern_stride() const {
  for (const MixerEntry& entry : entries())
    for (const MixerItem& item : entry.beside)
      if (item.config().stride() > 0) return item.config().stride();
  return 0;
}

bool DecoderConfig::remembers() const {
  for (const MixerEntry& entry : entries())
    for (const MixerItem& item : entry.beside)
      if (item.config().remembers()) return true;
  return false;
}

std::string DecoderConfig::problem_of_documents() const {
  for (const MixerEntry& entry : entries())
    for (const MixerItem& item : entry.beside)
      if (const std::string problem = item.config().problem_of_documents(); !problem.empty()) return problem;
  return {};
}

std::shared_ptr<ModelConfig> DecoderConfig::with_documents(const DocumentForm& changed) const {
  if (changed.separate && !problem_of_documents().empty()) return ModelConfig::with_documents(changed);
  auto config = std::make_shared<DecoderConfig>(*this);
  config->documents = changed;
  return config;
}

void DecoderConfig::visit(SettingsVisitor& v) {
  v.field("layers", layers, Need::required, ranges::layers);
  v.field("width", width, Need::required, ranges::width);
  v.field("heads", heads, Need::required, sizes::heads);
  v.field("key_ratio", key_ratio, Need::optional, sizes::ratio);
  v.field("feed_forward_ratio", feed_forward_ratio, Need::optional, sizes::ratio);
  v.field("dropout", dropout, Need::optional, ranges::fraction);
  v.field("embedding_dropout", embedding_dropout, Need::optional, ranges::fraction);
  v.field("inner_dropout", inner_dropout, Need::optional, ranges::fraction);
  v.field("output_dropout", output_dropout, Need::optional, ranges::fraction);
  v.choice(
      "positions", positions, Need::optional,
      Choices<Positions>{{"attention", Positions::attention}, {"data", Positions::data}, {"none", Positions::none}});
  v.field("rotary_base", rotary_base, Need::optional, sizes::rotary_base);
  v.field("query_key_norm", query_key_norm, Need::optional);
  v.choice("init", init, Need::optional,
           Choices<InitReading>{{"variance", InitReading::variance}, {"deviation", InitReading::deviation}});
  v.field("init_deviation", init_deviation, Need::optional, ranges::not_negative_real);
  v.section("init_deviations", Need::optional, init_deviations.given(), [&] { visit_deviations(v, init_deviations); });
  visit_form(v, *this);
  bool has_attention = false, has_distance = false;
  AttentionConfig pattern(attention, attention_sink);
  v.section("attention", Need::optional, !distance.given && mixers.empty(), [&] {
    has_attention = true;
    pattern.visit(v);
  });
  v.section("distance", Need::optional, distance.given, [&] {
    has_distance = true;
    visit_distance(v, distance);
  });
  if (v.reads()) {
    attention = pattern.pattern, attention_sink = pattern.sink;
    attention_given = has_attention, distance.given = has_distance;
  }
  v.section("memory", Need::optional, memory.length > 0, [&] { visit_memory(v, memory); });
  visit_mixers(v, "mixers", mixers);
  v.choice("recompute", recompute, Need::optional, recompute_names());
}

void DecoderConfig::check(SettingsChecker& check, std::int64_t sequence_ranks) const {
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
  check_mechanism(check, *this);
  check_deviations(check, *this);
  if (!mixers.empty())
    check_mixers(check, mixers, *this, context, sequence_ranks);
  else if (attention_given || distance.given)
    check_short_form(check, sequence_ranks);
  check_positions(check, *this);
  if (check.none_in({"model.mixers"})) check_transforms(check, *this);
  if (check.none_in({"model.heads", "parallel.sequence_ranks"}) && heads % sequence_ranks != 0)
    check.refuse("parallel.sequence_ranks", "parallel.sequence_ranks is {}, but must divide model.heads, {}",
                 sequence_ranks, heads);
}

void DecoderConfig::check_short_form(SettingsChecker& check, std::int64_t sequence_ranks) const {
  const MixerForm form{*this, heads, context, true, ""};
  if (attention_given)
    AttentionConfig(attention, attention_sink).check({check, "model.attention", "", form, sequence_ranks});
  if (distance.given)
    DistanceSettings(distance, memory).check({check, "model.distance", "model.memory", form, sequence_ranks});
}

void DecoderConfig::check_training(SettingsChecker& check) const {
  const std::pair<const char*, double> dropouts[] = {{"model.dropout", dropout},
                                                     {"model.embedding_dropout", embedding_dropout},
                                                     {"model.inner_dropout", inner_dropout},
                                                     {"model.output_dropout", output_dropout}};
  for (const auto& [key, p] : dropouts)
    if (check.none_in({key}) && static_cast<float>(p) == 1.0F)
      check.refuse(key, "{} is {}, which is 1 in fp32; set {}: 0.25", key, p, key);
  if (!mixers.empty()) return check_training_of_mixers(check, mixers, *this, context);
  const MixerForm form{*this, heads, context, true, ""};
  if (attention_given) AttentionConfig(attention, attention_sink).check_training({check, "model.attention", "", form});
  if (distance.given)
    DistanceSettings(distance, memory).check_training({check, "model.distance", "model.memory", form});
}

// The problem of the first mixer that has windows, or else why none has.
std::string DecoderConfig::problem_of_windows(const std::vector<std::int64_t>& of_layers) const {
  std::string problem;
  for (const MixerEntry& entry : entries())
    for (const MixerItem& item : entry.beside) {
      problem = item.config().problem_of_windows(of_layers, layers);
      if (item.config().has_windows()) return problem;
    }
  return problem;
}

double DecoderConfig::activation_bytes() const {
  const std::int64_t inner = kernels::inputs_of(activation) * inner_width();
  return static_cast<double>(inner + 4 * width) * sizeof(float) * static_cast<double>(layers);
}

std::string DecoderConfig::summary() const {
  return fmt::format("{} layers, width {}, {} heads, keys of {}, inner width {}", layers, width, heads, key_size(),
                     inner_width());
}

std::vector<RecomputePolicy> DecoderConfig::recompute_policies() const {
  std::vector<Recompute> candidates = {recompute};
  if (recompute == Recompute::automatic) candidates = {Recompute::none, Recompute::selective, Recompute::block};
  std::vector<RecomputePolicy> out;
  for (const auto& [name, value] : recompute_names()) {
    if (std::find(candidates.begin(), candidates.end(), value) == candidates.end()) continue;
    auto config = std::make_shared<DecoderConfig>(*this);
    config->recompute = value;
    out.push_back({name, what_is_kept(value), std::move(config)});
  }
  return out;
}

// Keeps the pattern, the position tables and the kind of data. Pictures keep their size and therefore their stride.
std::vector<std::string> DecoderConfig::toy_overrides() const {
  const auto set = [](const char* key, auto value) { return fmt::format("model.{}={}", key, value); };
  const bool small_pictures = geometry.rows == 32;
  std::vector<std::string> out = {set("layers", small_pictures ? 4 : 2), set("width", 64),
                                  set("heads", small_pictures ? 2 : 4), set("feed_forward_ratio", 2.0),
                                  set("dropout", 0.0)};
  for (const auto& [key, p] :
       {std::pair("embedding_dropout", embedding_dropout), std::pair("inner_dropout", inner_dropout),
        std::pair("output_dropout", output_dropout), std::pair("distance.dropout", distance.dropout),
        std::pair("distance.table_dropout", distance.table_dropout)})
    if (p > 0) out.push_back(set(key, 0.0));
  if (!mixers.empty()) {  // a list is replaced as a whole, and every entry needs a layer
    std::int64_t cycle = 0;
    for (const MixerEntry& entry : mixers) cycle += entry.layers;
    out.front() = set("layers", cycle);
    return out;
  }
  if (distance.given) {
    if (!distance.window.empty()) out.push_back(set("distance.window", 32));
    if (distance.dilation.size() > 1) out.push_back(set("distance.dilation", 2));
    if (distance.table == DistanceTable::learned)
      out.push_back(set("distance.distances", std::min<std::int64_t>(distance.distances, 64)));
    if (distance.span.given())
      out.push_back(set("distance.span.longest", std::min<std::int64_t>(distance.span.longest, 64)));
    if (memory.length > 0) out.push_back(set("memory.length", std::min<std::int64_t>(memory.length, 64)));
    return out;
  }
  if (geometry.rows > 0) return out;
  out.push_back(set("attention.stride", attention.stride / 4));
  if (any_part(attention, kernels::reads_summary)) out.push_back(set("attention.summary", 8));
  return out;
}

}  // namespace longstride
