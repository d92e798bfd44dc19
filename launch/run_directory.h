// A run's folder and how commands find what is in it: RUN/recipe.yaml (the resolved recipe), RUN/metrics.jsonl,
// RUN/events.* (TensorBoard), RUN/checkpoints/step-00001000/, RUN/samples/.
#pragma once
#include <memory>
#include <string>

#include "framework/models/sparse_transformer.h"
#include "framework/train/host_memory.h"
#include "launch/recipe.h"

namespace longstride {

// A trained model with its weights in memory, for eval and sample.
struct LoadedRun {
  Recipe recipe;  // as the checkpoint holds it
  std::unique_ptr<SparseTransformer> model;
  std::unique_ptr<HostMemory> weights;
  Tensor masters;  // in it: the flat buffer that the model is bound to
  std::int64_t step = 0;
  bool averaged = false;  // the running average of the weights, rather than the last ones
};

// weights: "automatic" (the average where the run keeps one), "last" or "average". UserError when `run` is no run
// directory or holds no whole checkpoint.
LoadedRun load_run(const std::string& run, const std::string& weights);

// UserError when the newest whole checkpoint of `run` cannot be continued with this recipe: another model, other data,
// another seed or another kind of optimizer than it began with, or fewer steps than it has done. Nothing is written.
void check_resumable(const std::string& run, const Recipe& recipe);

}  // namespace longstride
