#include "launch/report/run_facts.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>

#include "framework/core/errors.h"
#include "framework/core/files/inside.h"
#include "framework/core/text/json.h"
#include "framework/core/text/printable.h"
#include "framework/train/stages.h"
#include "launch/hub/pretrained.h"
#include "launch/hub/weight_files.h"
#include "launch/run/run_data.h"
#include "launch/run/run_records.h"

namespace longstride {
namespace {

namespace fs = std::filesystem;

// The state of a run that has no checkpoint yet, as its first one would record it.
CheckpointState state_before_checkpoints(const std::string& run) {
  const std::string recipe = newest_record(run, "recipe.yaml"), environment = newest_record(run, "environment.json");
  if (!fs::exists(recipe) || !fs::exists(environment))
    throw user_error("{}: no run has begun there; start `longstride train` first", printable(run));
  CheckpointState state;
  state.recipe = read_at_most(recipe);
  const auto kept = parse_json(read_at_most(environment));
  if (kept.is_object() && kept.contains("ranks") && kept.at("ranks").is_number_integer())
    state.world_size = static_cast<int>(std::clamp<std::int64_t>(kept.at("ranks").get<std::int64_t>(), 1, 1 << 20));
  return state;
}

// The facts of a folder in the layout of Hugging Face: the model, and the log of transformers' Trainer.
RunFacts read_folder(const std::string& run) {
  RunFacts facts;
  facts.run = run;
  facts.state = read_pretrained(run);
  LoadedRun loaded = load_pretrained(run);
  facts.spans = spans_of(*loaded.model);
  facts.recipe = std::move(loaded.recipe);
  facts.model = facts.recipe.model->make_model();
  facts.history = read_trainer_history(run, *facts.recipe.objective);
  facts.finished = facts.pretrained = true;
  return facts;
}

}  // namespace

double RunFacts::tokens_before(std::int64_t step) const {
  return static_cast<double>(positions_before(recipe.train, step, recipe.data.context));
}

std::string RunFacts::passes() const {
  const auto found = state.data.find(train_bytes_name);
  const std::int64_t bytes = found == state.data.end() ? 0 : std::strtoll(found->second.c_str(), nullptr, 10);
  if (bytes <= 0) return "";
  return Passes{static_cast<double>(state.tokens_seen) / static_cast<double>(bytes), bytes}.number();
}

RunFacts read_run(const std::string& run, bool live) {
  if (is_pretrained(run)) return read_folder(run);
  RunFacts facts;
  facts.run = run;
  const bool begun = live && checkpoint_steps(run).empty();
  facts.state = begun ? state_before_checkpoints(run) : read_newest_state(run, false);
  facts.recipe = recipe_of_run(facts.state.recipe, run + "/recipe.yaml");
  facts.model = facts.recipe.model->make_model();
  if (!begun) facts.state = learns_spans(*facts.model) ? read_state_of_weights(run) : read_newest_state(run);
  tell_objective(facts.recipe, facts.state.data);
  facts.history = read_history(run, *facts.recipe.objective);
  if (!begun) facts.spans = read_spans(run, facts.state.step, *facts.model);
  facts.finished = facts.state.step >= facts.recipe.train.steps;
  const std::int64_t logged =
      facts.history.steps.empty() ? 0 : std::min(facts.history.steps.back().step, facts.recipe.train.steps);
  if (live && logged > facts.state.step) {
    facts.state.tokens_seen +=
        static_cast<std::int64_t>(facts.tokens_before(logged) - facts.tokens_before(facts.state.step));
    facts.state.step = logged;
  }
  return facts;
}

}  // namespace longstride
