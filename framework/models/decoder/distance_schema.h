// The recipe keys of `model.distance` and `model.memory`, and what they must agree with.
#pragma once
#include <string>
#include <vector>

#include "framework/models/decoder/config.h"

namespace longstride {

constexpr std::int64_t longest_memory = 1 << 23;       // positions
constexpr std::int64_t most_key_rows = (1 << 24) - 1;  // of memory and segment, which kernels/distance_attention takes

void visit_distance(SettingsVisitor& v, DistanceConfig& c);
void visit_memory(SettingsVisitor& v, MemoryConfig& c);
// What is wrong with numbers of positions, one for all layers or one for each; empty: nothing.
std::string problem_of_layers(const std::vector<std::int64_t>& values, std::int64_t layers);
// Likewise, with windows for layers of this model, the recipe's or a stage's.
std::string problem_of_windows(const std::vector<std::int64_t>& windows, const DecoderConfig& m);
void check_distance(SettingsChecker& check, const DecoderConfig& m, std::int64_t sequence_ranks);

}  // namespace longstride
