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
  const std::string before =
      rows.before() > 0 ? fmt::format(" ({} before the segment)", thousands(reach.before_segment)) : std::string();
  return fmt::format("{} positions back{}", thousands(reach.farthest), before);
}

}  // namespace

std::optional<MemoryFacts> memory_facts(const Model& model, const StateTypes& types) {
  const auto* looks = capability<LooksBack>(model);
  const auto* shows = capability<ShowsAttention>(model);
  if (looks == nullptr || shows == nullptr) return std::nullopt;
  const AttentionShape shape = shows->attention_shape();
  MemoryFacts out;
  out.rows = shape.keys;
  const auto* learns = capability<LearnsSpans>(model);
  const SpanParameters spans = learns != nullptr ? learns->spans() : SpanParameters{};
  out.keys = looks->mean_keys(spans.longest);
  out.causal_keys = static_cast<double>(out.rows.before()) + static_cast<double>(out.rows.segment + 1) / 2;
  if (!spans.layers.empty()) out.initial_keys = looks->mean_keys(spans.initial);
  constexpr std::int64_t buffers = 2;  // framework/core/state.h
  out.bytes_per_sequence = buffers * model.states().row_bytes(types);
  out.layers = shape.layers;
  for (std::int64_t layer = 0; layer < shape.layers; ++layer) {
    const LookBack reach = looks->look_back_of_layer(layer);
    if (reach.farthest <= out.of_layer.farthest) continue;
    out.of_layer = reach;
    out.farthest_layer = layer;
  }
  out.of_all = looks->look_back();
  return out;
}

nlohmann::ordered_json as_json(const MemoryFacts& facts) {
  const auto reach = [](const LookBack& r) {
    return nlohmann::ordered_json{{"farthest", r.farthest}, {"before_segment", r.before_segment}};
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
