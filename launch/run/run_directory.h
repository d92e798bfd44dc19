// A run's folder and how commands find its contents: RUN/recipe.yaml and RUN/environment.json (run_records.h),
// RUN/metrics.jsonl, RUN/events.* (TensorBoard), RUN/checkpoints/step-00001000/, RUN/samples/, RUN/tokenizer.model,
// RUN/lock.
#pragma once
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "framework/comm/communicator.h"
#include "framework/core/device/memory.h"
#include "framework/train/checkpoint/checkpoint.h"
#include "framework/train/stages.h"
#include "launch/recipe/recipe.h"
#include "launch/sample/run_tokens.h"

namespace longstride {

// A trained model with its weights in memory, for eval and sample.
struct LoadedRun {
  Recipe recipe;  // as the checkpoint holds it
  std::unique_ptr<Model> model;
  Block weights;
  Tensor masters;   // in `weights`: the flat buffer that the model is bound to
  DataRecord data;  // the dataset that it was trained on; empty: not recorded
  std::string run;  // its folder
  std::int64_t step = 0;
  bool averaged = false;  // the weights are the running average rather than the last ones

  // The name that --weights gives to its weights; and to the others if the run keeps both, otherwise empty.
  const char* weights_name() const { return averaged ? "average" : "last"; }
  const char* other_weights() const { return recipe.train.ema == 0 ? "" : averaged ? "last" : "average"; }
  // ", averaged weights (the others: --weights last)"; empty if there are no others.
  std::string weights_text() const;
  // Layers draw by the seed of the run, and its steps.
  void describe(Context& ctx) const {
    ctx.seed = recipe.train.seed;
    ctx.trained = step;
  }
  // With the tokenizer in its folder, if its data has one: UserError if that is missing or another.
  RunTokens tokens() const;
  // The stage of the last step that it has taken, whose windows `model` has; null: none.
  const Stage* stage() const { return stage_at(recipe.train, step - 1); }
};

inline constexpr const char* not_set = "not set";  // a word of messages for a missing value

// For the help of eval, sample and report.
inline constexpr const char* run_or_folder = "run directory, or a folder that Python or export --hf has written";

// The values of --checkpoint: best, last, or a step.
inline constexpr const char* checkpoint_help =
    "best (by validation loss), last (the default), or the step of a checkpoint";
CheckpointChoice parse_checkpoint_choice(const std::string& text);

// Memory for the weights of the model, which it is bound to.
void make_room(LoadedRun& loaded);

// weights: "automatic" (the average if the run keeps one), "last" or "average". UserError if `run` is not a run
// directory or holds no whole checkpoint of this choice. It may also be a folder in the layout of Hugging Face
// (launch/hub/pretrained.h), which leaves no choice.
LoadedRun load_run(const std::string& run, const std::string& weights, const CheckpointChoice& choice = {});

// The same on every rank: rank 0 chooses and reads, and sends it to the others, which read nothing. A run that is
// training may replace its checkpoints meanwhile.
LoadedRun load_run_on_ranks(const std::string& run, const std::string& weights, const CheckpointChoice& choice,
                            Communicator& comm);

// Every key of the resolved recipe, dotted, and its value as text.
std::map<std::string, std::string> settings_by_key(const Recipe& recipe);

// A difference between a resumed run and the run up to its last checkpoint.
struct Change {
  std::string what, before, now;
};

// The changes between the newest whole checkpoint of `run` and this recipe and data: settings of training, and the
// bytes of the dataset. Leaves out what changes no figure (where data and checkpoints are, what is logged and when), or
// only its rounding (micro-batches, ranks, recompute). UserError if the run cannot be continued with this recipe at
// all: another model, kind of data, tokenizer, seed or kind of optimizer, other rows of a model with a memory, or fewer
// steps than it has done. Nothing is written.
std::vector<Change> changes_since_checkpoint(const std::string& run, const Recipe& recipe, const DataRecord& data);

}  // namespace longstride
