// A recipe trained into a run directory: what `train` and `reproduce` share.
#pragma once
#include <string>

#include "framework/train/trainer.h"
#include "launch/commands/commands.h"
#include "launch/recipe/recipe.h"

namespace longstride {

struct TrainRequest {
  Recipe recipe;
  std::string run;
  bool resume = false;
  bool accept_changes = false;  // resume with other settings or data than before, and say which
  Device device = Device::cpu;
};

// On every rank alike. UserError when the run's directory holds another run or another process trains into it, or, to
// be resumed, when it holds none or would change without accept_changes.
TrainingOutcome train_run(const TrainRequest& request, Session& session);

}  // namespace longstride
