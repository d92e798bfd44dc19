// A recipe trained into a run directory: what `train` and `reproduce` share.
#pragma once
#include <optional>
#include <string>

#include "framework/train/trainer.h"
#include "launch/commands/commands.h"
#include "launch/recipe/recipe.h"
#include "launch/run/begin_from.h"

namespace longstride {

struct TrainRequest {
  Recipe recipe;
  std::string run;
  bool resume = false;
  bool accept_changes = false;    // resume with other settings or data than before, and list the changes
  std::optional<BeginFrom> from;  // a new run with the weights of another; absent: random weights
  Device device = Device::cpu;
};

struct RunOutcome : TrainingOutcome {
  double seconds = 0;  // time of this call's training, with all that it pauses for
  std::optional<double>
      joules;  // that the ranks' GPUs used meanwhile; absent on the CPU and where a driver keeps quiet
};

// Called on every rank. UserError if another process trains in the run's directory, if a new run would overwrite one
// there, or if a run to be resumed does not exist or would change without accept_changes, or if the weights to begin
// with cannot be had.
RunOutcome train_run(TrainRequest request, Session& session);

}  // namespace longstride
