// The recipe keys of a decoder beyond those of every stack, and the conditions that combine several keys.
#include <fmt/format.h>

#include <algorithm>

#include "framework/mixers/attention/config.h"
#include "framework/mixers/distance/settings.h"
#include "framework/models/decoder/decoder.h"

namespace longstride {
namespace {

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

// Bands that rise within the vocabulary, whose narrower vectors have whole widths.
void check_adaptive(SettingsChecker& check, const DecoderConfig& m) {
  if (!check.none_in({"model.adaptive"})) return;
  const Bands& bands = m.adaptive;
  if (bands.clusters() > kernels::BandEdges::most)
    return check.refuse("model.adaptive.cutoffs",
                        "model.adaptive.cutoffs has {} ids, but must have at most {}; join some of the bands",
                        bands.clusters(), kernels::BandEdges::most);
  for (std::int64_t band = 1; band < bands.count(); ++band) {
    if (bands.first(band) > bands.first(band - 1)) continue;
    return check.refuse("model.adaptive.cutoffs",
                        "model.adaptive.cutoffs has {} after {}, but must rise: each is the first id of a band, "
                        "and ids are sorted by frequency",
                        bands.first(band), bands.first(band - 1));
  }
  if (bands.given() && check.none_in({"data.kind", "data.vocabulary"}) && bands.cutoffs.back() >= m.vocabulary)
    check.refuse("model.adaptive.cutoffs",
                 "model.adaptive.cutoffs ends with {}, but must stay below data.vocabulary, which is {}; remove those "
                 "beyond",
                 bands.cutoffs.back(), m.vocabulary);
  if (!check.none_in({"model.width"})) return;
  std::int64_t narrow = m.width;
  for (std::int64_t band = 1; band < bands.count(); ++band, narrow /= bands.divide)
    if (narrow % bands.divide != 0)
      return check.refuse("model.adaptive.divide",
                          "model.adaptive.divide is {}, but must divide model.width, {}, once for each of the {} "
                          "cutoffs; choose 1, or another width",
                          bands.divide, m.width, bands.clusters());
}

}  // namespace

std::unique_ptr<Model> DecoderConfig::make_model() const { return std::make_unique<Decoder>(*this); }

std::vector<MixerEntry> DecoderConfig::entries() const {
  if (!mixers.empty() || !distance.given) return StackConfig::entries();
  std::vector<MixerEntry> one(1);
  one.front().beside.emplace_back(std::make_unique<DistanceSettings>(distance, memory));
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

void DecoderConfig::visit(SettingsVisitor& v) {
  visit_blocks(v);
  visit_attention_section(v, !distance.given && mixers.empty());
  bool has_distance = false;
  v.section("distance", Need::optional, distance.given, [&] {
    has_distance = true;
    visit_distance(v, distance);
  });
  if (v.reads()) distance.given = has_distance;
  v.section("memory", Need::optional, memory.length > 0, [&] { visit_memory(v, memory); });
  v.section("adaptive", Need::optional, adaptive.given(), [&] {
    v.list("cutoffs", adaptive.cutoffs, Need::required);
    v.field("divide", adaptive.divide, Need::optional, ranges::width);
  });
  visit_rest(v);
}

void DecoderConfig::check(SettingsChecker& check, std::int64_t sequence_ranks) const {
  check_blocks(check);
  check_mechanism(check, *this);
  check_deviations(check, *this);
  check_adaptive(check, *this);
  check_all_mixers(check, sequence_ranks, [&] {
    const MixerForm form = form_of_all();
    if (attention_given)
      AttentionConfig(attention, attention_heads).check({check, "model.attention", "", form, sequence_ranks});
    if (distance.given)
      DistanceSettings(distance, memory).check({check, "model.distance", "model.memory", form, sequence_ranks});
  });
}

void DecoderConfig::check_training(SettingsChecker& check) const {
  StackConfig::check_training(check);
  if (mixers.empty() && distance.given)
    DistanceSettings(distance, memory).check_training({check, "model.distance", "model.memory", form_of_all()});
}

// As launch/python/longstride/model/settings.py has it.
std::string DecoderConfig::problem_in_python() const {
  if (!mixers.empty()) return "lists of mixers (model.mixers) run in the longstride command alone";
  if (attention_given && attention_heads.labels > 0)
    return "labels of attention (model.attention.labels) run in the longstride command alone";
  if (adaptive.given()) return "adaptive softmax and input (model.adaptive) run in the longstride command alone";
  return {};
}

// Keeps the pattern, the position tables and the kind of data.
std::vector<std::string> DecoderConfig::toy_overrides() const {
  auto sizes = toy_sizes();
  std::vector<std::string>& out = sizes.first;
  for (const auto& [key, p] :
       {std::pair("distance.dropout", distance.dropout), std::pair("distance.table_dropout", distance.table_dropout)})
    if (p > 0) out.push_back(model_override(key, 0.0));
  // The bands of a table are the data's.
  if (adaptive.projects()) out.push_back(model_override("adaptive.divide", 1));
  if (sizes.second) return out;
  const auto add = [&](const char* key, auto value) { out.push_back(model_override(key, value)); };
  if (!distance.given) {
    for (std::string& override_of : toy_pattern()) out.push_back(std::move(override_of));
    return out;
  }
  if (!distance.window.empty()) add("distance.window", 32);
  if (distance.dilation.size() > 1) add("distance.dilation", 2);
  if (distance.table == DistanceTable::learned)
    add("distance.distances", std::min<std::int64_t>(distance.distances, 64));
  if (distance.span.given()) add("distance.span.longest", std::min<std::int64_t>(distance.span.longest, 64));
  if (memory.length > 0) add("memory.length", std::min<std::int64_t>(memory.length, 64));
  return out;
}

}  // namespace longstride
