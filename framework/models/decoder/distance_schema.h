// The recipe keys of `model.distance` and `model.memory`, and what they must agree with.
#pragma once
#include "framework/models/decoder/config.h"

namespace longstride {

void visit_distance(SettingsVisitor& v, DistanceConfig& c);
void visit_memory(SettingsVisitor& v, MemoryConfig& c);
void check_distance(SettingsChecker& check, const DecoderConfig& m, std::int64_t sequence_ranks);

}  // namespace longstride
