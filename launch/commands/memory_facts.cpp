#include "launch/commands/memory_facts.h"

#include <fmt/format.h>

#include "framework/core/text/numbers.h"

namespace longstride {
namespace {

std::string rows_text(const KeyRows& rows) {
  std::string out;
  if (rows.compressed > 0) out += fmt::format("compressed memory {}, ", rows.compressed);
  if (rows.memory > 0) out += fmt::format("memory {}, ", rows.memory);
  return out + fmt::format("segment {}", rows.segment);
}

std::string reach_text(const LookBack& reach, const KeyRows& rows) {
  if (reach.farthest >= Reach::without_end) return "everything before";
  const std::string before =
      rows.before() > 0 ? fmt::format(" ({} before the segment)", thousands(reach.before_segment)) : std::string();
  return fmt::format("{} positions back{}", thousands(reach.farthest), before);
}

// True if the share of causal pairs does not say what layers see.
bool counts_keys(const MixesPositions& model) {
  for (std::int64_t layer = 0; layer < model.layers(); ++layer)
    if (model.mixer(layer).mean_keys(0)) return true;
  return false;
}

double mean_keys(const Mixer& mixer, double span) {
  if (const auto keys = mixer.mean_keys(span)) return *keys;
  const std::int64_t segment = mixer.key_rows().segment;
  return mixer.cost(segment).pairs / static_cast<double>(mixer.heads() * segment);
}

}  // namespace

std::optional<MemoryFacts> memory_facts(const Model& model, const StateTypes& types) {
  const auto* mixes = capability<MixesPositions>(model);
  if (mixes == nullptr || !counts_keys(*mixes)) return std::nullopt;
  MemoryFacts out;
  out.layers = mixes->layers();
  bool learned = false;
  for (std::int64_t layer = 0; layer < out.layers; ++layer) {
    const Mixer& mixer = mixes->mixer(layer);
    const HeadSpans spans = mixer.spans();
    const KeyRows rows = mixer.key_rows();
    if (rows.all() > out.rows.all()) out.rows = rows;
    learned |= spans.learned();
    out.keys += mean_keys(mixer, spans.longest);
    out.initial_keys += mean_keys(mixer, spans.initial);
    out.causal_keys += static_cast<double>(rows.before()) + static_cast<double>(rows.segment + 1) / 2;
  }
  for (double* sum : {&out.keys, &out.initial_keys, &out.causal_keys}) *sum /= static_cast<double>(out.layers);
  if (!learned) out.initial_keys = 0;
  constexpr std::int64_t buffers = 2;  // framework/core/state.h
  out.bytes_per_sequence = buffers * model.states().row_bytes(types);
  for (std::int64_t layer = 0; layer < out.layers; ++layer) {
    const LookBack reach = look_back_of_layer(*mixes, layer);
    if (reach.farthest <= out.of_layer.farthest) continue;
    out.of_layer = reach;
    out.farthest_layer = layer;
  }
  out.of_all = look_back(*mixes);
  return out;
}

nlohmann::ordered_json as_json(const KeyRows& rows) {
  nlohmann::ordered_json out = {{"compressed", rows.compressed}, {"memory", rows.memory}};
  if (rows.added > 0) out["added"] = rows.added;
  out["segment"] = rows.segment;
  return out;
}

nlohmann::ordered_json as_json(const MemoryFacts& facts) {
  const auto reach = [](const LookBack& r) {
    const bool ends = r.farthest < Reach::without_end;
    return nlohmann::ordered_json{{"farthest", ends ? nlohmann::ordered_json(r.farthest) : nullptr},
                                  {"before_segment", ends ? nlohmann::ordered_json(r.before_segment) : nullptr}};
  };
  nlohmann::ordered_json out = {{"rows", facts.rows.memory},    {"compressed_rows", facts.rows.compressed},
                                {"rate", facts.rows.rate},      {"bytes_per_sequence", facts.bytes_per_sequence},
                                {"keys_per_query", facts.keys}, {"causal_keys_per_query", facts.causal_keys}};
  if (facts.initial_keys > 0) out["initial_keys_per_query"] = facts.initial_keys;
  out["reach_of_layer"] = reach(facts.of_layer);
  out["reach"] = reach(facts.of_all);
  return out;
}

std::vector<std::pair<const char*, std::string>> as_lines(const MemoryFacts& facts) {
  std::vector<std::pair<const char*, std::string>> out;
  std::string keys = fmt::format("{:.5g} keys per query on average, of {:.5g} up to its own ({})", facts.keys,
                                 facts.causal_keys, rows_text(facts.rows));
  if (facts.initial_keys > 0)
    keys += fmt::format("; with the longest spans, and {:.5g} with the initial ones", facts.initial_keys);
  out.emplace_back("attention", keys);
  if (facts.rows.before() > 0) {
    const std::string compressed = facts.rows.compressed > 0
                                       ? fmt::format(" and {} compressed ones, one for every {} that leave the memory",
                                                     thousands(facts.rows.compressed), facts.rows.rate)
                                       : std::string();
    out.emplace_back("memory",
                     fmt::format("{} rows per layer{}: {} bytes per sequence, in two buffers",
                                 thousands(facts.rows.memory), compressed, thousands(facts.bytes_per_sequence)));
  }
  out.emplace_back(
      "reach", fmt::format("layer {} by itself: {}; {} layers together: {}", facts.farthest_layer,
                           reach_text(facts.of_layer, facts.rows), facts.layers, reach_text(facts.of_all, facts.rows)));
  return out;
}

}  // namespace longstride
