// Facts for `plan` about attention that may look back beyond its window: what it sees, remembers and reaches.
#pragma once
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "framework/models/mixes_positions.h"
#include "framework/models/model.h"

namespace longstride {

struct MemoryFacts {
  KeyRows rows;
  double keys = 0;          // per query: the mean of all layers, heads and positions; with the longest spans
  double causal_keys = 0;   // if every query saw all rows up to its own
  double initial_keys = 0;  // with the spans that training begins with; 0: heads learn no spans
  std::int64_t bytes_per_sequence = 0;  // all layers' states: the remembered rows, and the next step's
  std::int64_t layers = 0, farthest_layer = 0;
  LookBack of_layer, of_all;  // the layer that looks back farthest, and all together
};

// Absent: the share of the causal pairs says what the model sees.
std::optional<MemoryFacts> memory_facts(const Model& model, const StateTypes& types);
nlohmann::ordered_json as_json(const MemoryFacts& facts);
nlohmann::ordered_json as_json(const KeyRows& rows);
// Names and values of lines.
std::vector<std::pair<const char*, std::string>> as_lines(const MemoryFacts& facts);

}  // namespace longstride
