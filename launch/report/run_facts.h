// What the pages of runs are made from.
#pragma once
#include <memory>
#include <string>

#include "framework/train/checkpoint/checkpoint.h"
#include "launch/recipe/recipe.h"
#include "launch/report/run_history.h"

namespace longstride {

struct RunFacts {
  std::string run;        // directory
  CheckpointState state;  // of the newest checkpoint
  Recipe recipe;
  std::unique_ptr<Model> model;
  RunHistory history;
  double step_tokens = 0;  // bytes that a step trains on
  bool finished = false;   // the newest checkpoint is the last one
};

// UserError if the directory holds no checkpoint. `live`: of a run that trains: what it has logged since its newest
// checkpoint counts, and it need not have one yet.
RunFacts read_run(const std::string& run, bool live);

}  // namespace longstride
