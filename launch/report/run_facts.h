// The facts from which pages of runs are made.
#pragma once
#include <memory>
#include <string>

#include "framework/train/checkpoint/checkpoint.h"
#include "launch/recipe/recipe.h"
#include "launch/report/run_history.h"
#include "launch/report/spans.h"

namespace longstride {

struct RunFacts {
  std::string run;        // directory
  CheckpointState state;  // state of the newest checkpoint
  Recipe recipe;
  std::unique_ptr<Model> model;
  RunHistory history;
  RunSpans spans;           // spans in the newest checkpoint; no layers if heads learn none
  bool finished = false;    // the newest checkpoint is the last one
  bool pretrained = false;  // a folder that Python wrote: batches, rates and times of its training are unknown

  double tokens_before(std::int64_t step) const;  // bytes that the first `step` steps train on
  // How often it has read every byte of train; empty if its checkpoints do not record how many there are.
  std::string passes() const;
};

// UserError if the directory holds no checkpoint and is no folder in the layout of Hugging Face. `live`: of a run that
// trains: what it has logged since its newest checkpoint counts, and it need not have one yet.
RunFacts read_run(const std::string& run, bool live);

}  // namespace longstride
