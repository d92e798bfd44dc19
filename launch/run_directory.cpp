#include "launch/run_directory.h"

#include <map>

#include "framework/core/errors.h"
#include "framework/train/checkpoint.h"
#include "launch/settings_tree.h"

namespace longstride {
namespace {

using Values = std::vector<std::pair<std::string, std::string>>;

void flatten(const Setting& s, const std::string& key, Values& out) {
  for (const auto& [name, entry] : s.entries) flatten(entry, key.empty() ? name : key + "." + name, out);
  if (s.kind == Setting::Kind::map) return;
  std::string value = s.scalar;
  for (const Setting& item : s.items) value += (value.empty() ? "" : ", ") + item.scalar;
  out.emplace_back(key, value);
}

// What a run is: changing it would not continue the run but start another. Recompute only trades memory for time, and
// dropout may be tuned on the way.
bool must_stay(const std::string& key) {
  if (key == "model.recompute" || key == "model.dropout") return false;
  return key.starts_with("model.") || key == "data.kind" || key == "data.context" || key == "train.seed" ||
         key == "optimizer.kind";
}

}  // namespace

LoadedRun load_run(const std::string& run, const std::string& weights) {
  const CheckpointState state = read_newest_state(run);
  LoadedRun loaded;
  loaded.recipe = parse_recipe(state.recipe, run + "/recipe.yaml");
  loaded.model = std::make_unique<SparseTransformer>(loaded.recipe.model);
  ParameterSet& parameters = loaded.model->parameters();
  const bool keeps_average = loaded.recipe.train.ema > 0;
  if (weights == "average" && !keeps_average)
    throw user_error("{}: the run keeps no average of its weights (train.ema is 0); use --weights last", run);
  loaded.averaged = keeps_average && weights != "last";

  const Shape flat = {parameters.flat_size()};
  const Tensor sized(nullptr, Dtype::f32, flat);
  loaded.weights = std::make_unique<HostMemory>(sized.bytes());
  loaded.masters = Tensor(loaded.weights->data(), Dtype::f32, flat);
  parameters.bind(loaded.masters, loaded.masters);  // nothing here writes gradients
  loaded.step = load_weights(run, parameters, loaded.averaged).step;
  return loaded;
}

void check_resumable(const std::string& run, const Recipe& recipe) {
  const CheckpointState state = read_newest_state(run);
  const Recipe begun = parse_recipe(state.recipe, run + "/recipe.yaml");
  Values before, now;
  flatten(parse_settings(begun.resolved, run + "/recipe.yaml"), "", before);
  flatten(parse_settings(recipe.resolved, recipe.name), "", now);
  const std::map<std::string, std::string> known(before.begin(), before.end());
  for (const auto& [key, value] : now) {
    const auto found = known.find(key);
    if (must_stay(key) && found != known.end() && found->second != value)
      throw user_error("{} is {}, but the run in {} began with {}; resume it with its own recipe, or start another run",
                       key, value, run, found->second);
  }
  if (recipe.train.ema > 0 && begun.train.ema == 0)
    throw user_error("train.ema is {}, but the run in {} keeps no average of its weights; set train.ema: 0",
                     recipe.train.ema, run);
  if (recipe.train.steps < state.step)
    throw user_error("train.steps is {}, but the run in {} has done {} already; raise train.steps to go on",
                     recipe.train.steps, run, state.step);
}

}  // namespace longstride
