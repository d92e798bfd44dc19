// A recipe trained into a run directory: what `train` and `reproduce` share.
#pragma once
#include <string>

#include "framework/train/trainer.h"
#include "launch/commands.h"
#include "launch/recipe.h"

namespace longstride {

struct TrainRequest {
  Recipe recipe;
  std::string run;
  bool resume = false;
  Device device = Device::cpu;
};

// On every rank alike. UserError when the run's directory holds another run, or, to be resumed, none.
TrainingOutcome train_run(const TrainRequest& request, Session& session);

}  // namespace longstride
