// Automatic recompute: the fastest policy whose memory plan fits. The planner chooses before anything is allocated, and
// what trains afterwards has settings with a policy of their own.
#pragma once
#include <cstdint>
#include <optional>
#include <string>

#include "framework/models/model_config.h"
#include "framework/train/step/memory_plan.h"

namespace longstride {

struct RecomputeChoice {
  RecomputePolicy policy;
  std::string text;  // in one line: the policy, what it keeps and, if the planner chose it, why
};

// The policy that the recipe names, or else the first one that fits the limit: the last one if none does, and the first
// one if the limit is not known. Absent if this kind of model has no names for its policies.
std::optional<RecomputeChoice> choose_recompute(const ModelConfig& model, const TrainConfig& config, int ranks,
                                                Device device, const MemoryLimit& limit);

}  // namespace longstride
