#include "launch/run/begin_from.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>

#include "framework/core/errors.h"
#include "framework/core/files/safetensors.h"
#include "framework/core/text/printable.h"

namespace longstride {
namespace {

const Parameter* find(const ParameterSet& parameters, const std::string& name) {
  const auto& all = parameters.all();
  const auto found = std::find_if(all.begin(), all.end(), [&](const Parameter& p) { return p.name == name; });
  return found == all.end() ? nullptr : &*found;
}

// Empty if both have the same parameters.
std::string first_difference(const ParameterSet& there, const ParameterSet& here) {
  for (const Parameter& p : here.all()) {
    const Parameter* const other = find(there, p.name);
    if (other == nullptr) return fmt::format("{} {} is missing there", p.name, p.shape.text());
    if (!(other->shape == p.shape))
      return fmt::format("{} is {} there and {} in the recipe", p.name, other->shape.text(), p.shape.text());
  }
  for (const Parameter& p : there.all())
    if (find(here, p.name) == nullptr)
      return fmt::format("{} {} is missing in the recipe's model", p.name, p.shape.text());
  return "";
}

void refuse_other_parameters(const BeginFrom& from, const LoadedRun& loaded, const Recipe& recipe) {
  const auto model = recipe.model->make_model();
  const std::string difference = first_difference(loaded.model->parameters(), model->parameters());
  if (difference.empty()) return;
  std::string set, removed;
  for (const Change& change : changes_of_model(loaded, recipe)) {
    std::string& keys = change.before == not_set ? removed : set;
    keys += keys.empty() ? "" : ", ";
    keys += change.before == not_set ? change.what : fmt::format("{}: {}", change.what, change.before);
    keys += fmt::format(" (it is {})", change.now);
  }
  std::string remedy = set.empty() && removed.empty() ? "use the recipe of that run" : "";
  if (!set.empty()) remedy += "set " + set;
  if (!removed.empty()) remedy += (set.empty() ? "remove " : "; remove ") + removed;
  throw user_error("--from {}: the weights do not fit the recipe's model: {}; {}", printable(from.run), difference,
                   remedy);
}

bool is_file(const BeginFrom& from) {
  std::error_code none;
  return std::filesystem::is_regular_file(from.run, none);
}

void refuse_choices(const BeginFrom& from) {
  const bool last = from.checkpoint.kind == CheckpointChoice::Kind::last;
  if (last && from.weights == "automatic") return;
  throw user_error("--from {} is a file of weights, which has no checkpoints or averages to choose from; leave out {}",
                   printable(from.run), last ? "--weights" : "--checkpoint");
}

void refuse_other_tensors(const SafetensorsReader& file, const ParameterSet& parameters) {
  const auto refuse = [&](const std::string& difference) {
    throw user_error(
        "--from {}: the weights do not fit the recipe's model: {}; set the keys of model as they were for these "
        "weights",
        printable(file.path()), difference);
  };
  for (const Parameter& p : parameters.all()) {
    const TensorEntry* const entry = file.find(p.name);
    if (entry == nullptr) refuse(fmt::format("{} {} is missing there", p.name, p.shape.text()));
    if (!(entry->shape == p.shape))
      refuse(fmt::format("{} is {} there and {} in the recipe", p.name, entry->shape.text(), p.shape.text()));
  }
  for (const TensorEntry& entry : file.entries())
    if (find(parameters, entry.name) == nullptr)
      refuse(fmt::format("{} {} is missing in the recipe's model", printable(entry.name), entry.shape.text()));
}

// A file written by another program, or a checkpoint's. The model that reads it is the recipe's.
LoadedRun load_file(const BeginFrom& from, const Recipe& recipe) {
  refuse_choices(from);
  const SafetensorsReader file(from.run);
  LoadedRun loaded;
  loaded.recipe = recipe;
  loaded.model = recipe.model->make_model();
  ParameterSet& parameters = loaded.model->parameters();
  refuse_other_tensors(file, parameters);
  loaded.weights = Block(Device::cpu, static_cast<std::size_t>(parameters.flat_size()) * sizeof(float));
  loaded.masters = Tensor(loaded.weights.data(), Dtype::f32, {parameters.flat_size()});
  parameters.bind(loaded.masters, loaded.masters);  // nothing here writes gradients
  for (const Parameter& p : parameters.all()) {
    file.read(p.name, p.master);
    const float* values = p.master.as<const float>();
    if (!std::all_of(values, values + p.shape.count(), [](float value) { return std::isfinite(value); }))
      throw user_error("--from {}: weights of {} are not finite, so training cannot begin with them",
                       printable(from.run), p.name);
  }
  return loaded;
}

}  // namespace

std::vector<Change> changes_of_model(const LoadedRun& loaded, const Recipe& recipe) {
  const auto before = settings_by_key(loaded.recipe), now = settings_by_key(recipe);
  std::vector<Change> changes;
  const auto compare = [&](const std::string& key) {
    const bool shapes = key.starts_with("model.") && key != "model.recompute" && key != "model.dropout";
    if (!shapes && key != "data.kind" && key != "data.context") return;
    const auto value_in = [&](const auto& values) {
      return values.contains(key) ? values.at(key) : std::string(not_set);
    };
    if (value_in(before) != value_in(now)) changes.push_back({key, value_in(before), value_in(now)});
  };
  for (const auto& [key, value] : before) compare(key);
  for (const auto& [key, value] : now)
    if (!before.contains(key)) compare(key);
  return changes;
}

LoadedRun load_to_begin(const BeginFrom& from, const Recipe& recipe) {
  if (is_file(from)) return load_file(from, recipe);
  if (from.run.ends_with(".safetensors") && !std::filesystem::exists(from.run))
    throw user_error("--from {}: there is no such file; give a safetensors file or the directory of a run",
                     printable(from.run));
  LoadedRun loaded = load_run(from.run, from.weights, from.checkpoint);
  refuse_other_parameters(from, loaded, recipe);
  return loaded;
}

std::string origin_text(const BeginFrom& from, const LoadedRun& loaded) {
  const std::string path = std::filesystem::absolute(from.run).lexically_normal().string();
  if (is_file(from)) return path;
  return fmt::format("{}, step {}, {} weights", path, loaded.step, loaded.averaged ? "averaged" : "last");
}

void hand_over_weights(const LoadedRun* loaded, ParameterSet& parameters, Communicator& comm) {
  for (Parameter& p : parameters.all()) {
    if (loaded != nullptr) {
      const Parameter* const source = find(loaded->model->parameters(), p.name);
      LONGSTRIDE_CHECK(source != nullptr && source->shape == p.shape, "weights that do not fit");
      std::memcpy(p.master.data(), source->master.data(), p.master.bytes());
    }
    comm.broadcast(p.master.data(), static_cast<std::int64_t>(p.master.bytes()), 0);
  }
}

}  // namespace longstride
