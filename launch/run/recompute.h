// The policy that `model.recompute: automatic` of a recipe stands for, chosen before anything is allocated
// (framework/train/step/recompute_choice.h).
#pragma once
#include <optional>

#include "framework/comm/communicator.h"
#include "framework/train/step/recompute_choice.h"
#include "launch/recipe/recipe.h"

namespace longstride {

// A rank's part of the memory that is free here. Leaves a tenth on the CPU, and on a GPU the memory that the plan does
// not count: 1 GiB for kernels, libraries and graphs, and another for NCCL where there are several ranks.
MemoryLimit free_memory(Device device, int ranks, int ranks_on_host);
// The least that any rank has; every rank calls it.
MemoryLimit free_memory(Device device, Communicator& comm);

// UserError if any rank's plan needs more than there is, of the host's memory too; every rank calls it before any of
// them takes memory.
void check_training_fits(Model& model, const TrainConfig& config, Device device, Communicator& comm);

// True if the planner has to choose.
bool recompute_is_automatic(const Recipe& recipe);
// The recipe's policy, which replaces model.recompute: automatic, in the resolved text too. Absent if the model has no
// names for its policies.
std::optional<RecomputeChoice> choose_recompute(Recipe& recipe, int ranks, Device device, const MemoryLimit& limit);
// The same for what trains here, of a recipe that leaves the choice to the planner; absent for any other. Every rank
// calls it and gets the same choice.
std::optional<RecomputeChoice> choose_automatic_recompute(Recipe& recipe, Device device, Communicator& comm);

}  // namespace longstride
