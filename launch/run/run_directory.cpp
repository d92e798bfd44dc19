#include "launch/run/run_directory.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <map>
#include <set>

#include "framework/core/errors.h"
#include "framework/core/files/files.h"
#include "framework/core/text/printable.h"
#include "framework/train/checkpoint/checkpoint.h"
#include "framework/train/checkpoint/run_id.h"
#include "framework/train/step/step_work.h"
#include "launch/hub/pretrained.h"
#include "launch/hub/weight_files.h"
#include "launch/recipe/settings_tree.h"
#include "launch/run/run_data.h"

namespace longstride {
namespace {

using Values = std::vector<std::pair<std::string, std::string>>;

std::string value_of(const Setting& s) {
  std::string text = s.scalar;
  for (const Setting& item : s.items)
    text +=
        (text.empty() ? "" : ", ") + (item.kind == Setting::Kind::list ? "[" + value_of(item) + "]" : value_of(item));
  for (const auto& [name, entry] : s.entries) {
    const bool list = entry.kind == Setting::Kind::list;  // in brackets, because other entries follow
    text +=
        fmt::format("{}{}: {}{}{}", text.empty() ? "{" : ", ", name, list ? "[" : "", value_of(entry), list ? "]" : "");
  }
  return s.entries.empty() ? text : text + "}";
}

// Keys of maps within maps, dotted; a list, even of maps, is one value.
void flatten(const Setting& s, const std::string& key, Values& out) {
  if (s.kind != Setting::Kind::map) {
    const std::string value = value_of(s);
    const bool of_maps = !s.items.empty() && s.items.front().kind != Setting::Kind::scalar;  // in brackets, as in YAML
    out.emplace_back(key, value.empty() ? not_set : of_maps ? "[" + value + "]" : value);
    return;
  }
  for (const auto& [name, entry] : s.entries) flatten(entry, key.empty() ? name : key + "." + name, out);
}

// True for keys that define a run: changing one would start a different run. Recompute only trades memory for time, and
// dropout may be tuned on the way.
bool must_stay(const std::string& key) {
  if (key == "model.recompute" || key == "model.dropout") return false;
  return key.starts_with("model.") || key.starts_with("objective.") || key == "data.kind" || key == "data.context" ||
         key == "data.vocabulary" || key == "train.seed" || key == "optimizer.kind";
}

// Keys that change no figure that training computes, or only its rounding. Another path may lead to the same data,
// which is compared by its checksums.
bool may_change(const std::string& key) {
  static const std::set<std::string> free = {"name",
                                             "data.path",
                                             "model.recompute",
                                             "train.micro_batch",
                                             "train.graph",
                                             "train.log_every",
                                             "train.checkpoint_every",
                                             "train.keep",
                                             "train.keep_best",
                                             "train.mirror",
                                             "train.evaluate_every",
                                             "train.evaluate_windows",
                                             "train.sample_every",
                                             "train.sample_count",
                                             "train.sample_length",
                                             "train.hang_seconds",
                                             "optimizer.shard"};
  return free.contains(key) || key.starts_with("parallel.") || key.starts_with("reproduces.") ||
         key.starts_with("unpublished.");
}

// Another path matters only as the origin of other data.
void compare_data(const DataRecord& before, const DataRecord& now, std::vector<Change>& changes) {
  const auto value_in = [](const DataRecord& data, const std::string& name) {
    const auto found = data.find(name);
    return found == data.end() ? std::string(not_set) : found->second;
  };
  std::vector<Change> found;
  for (const auto& [name, value] : before) {
    if (name == "path" || name == train_bytes_name || name == train_text_bytes_name || value == value_in(now, name))
      continue;
    const bool split = std::find(std::begin(split_names), std::end(split_names), name) != std::end(split_names);
    const std::string what = split ? fmt::format("the sha256 of '{}'", name) : name + " of the data";
    found.push_back({what, short_checksum(value), short_checksum(value_in(now, name))});
  }
  const std::string path = value_in(before, "path"), path_now = value_in(now, "path");
  if (!found.empty() && path != path_now) changes.push_back({"data.path", path, path_now});
  changes.insert(changes.end(), found.begin(), found.end());
}

// Rank 0's record to every rank. Its values are paths too, which need not be UTF-8.
void send_record(DataRecord& record, Communicator& comm) {
  auto count = std::ssize(record);
  comm.broadcast(&count, sizeof count, 0);
  const DataRecord first = std::move(record);
  record.clear();
  auto entry = first.begin();
  for (std::ptrdiff_t i = 0; i < count; ++i) {
    const bool sends = entry != first.end();
    const std::string name = comm.broadcast_text(sends ? entry->first : "", 0);
    record[name] = comm.broadcast_text(sends ? entry->second : "", 0);
    if (sends) ++entry;
  }
}

}  // namespace

std::map<std::string, std::string> settings_by_key(const Recipe& recipe) {
  Values values;
  flatten(parse_settings(recipe.resolved, recipe.name), "", values);
  return {values.begin(), values.end()};
}

CheckpointChoice parse_checkpoint_choice(const std::string& text) {
  if (text == "last") return {CheckpointChoice::Kind::last};
  if (text == "best") return {CheckpointChoice::Kind::best};
  CheckpointChoice choice{CheckpointChoice::Kind::step};
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, choice.step);
  if (error != std::errc() || stop != end || choice.step < 0)
    throw user_error("--checkpoint is '{}', but must be best, last, or a step such as 1000", printable(text));
  return choice;
}

void make_room(LoadedRun& loaded) {
  ParameterSet& parameters = loaded.model->parameters();
  const Tensor sized(nullptr, Dtype::f32, {parameters.flat_size()});
  loaded.weights = Block(Device::cpu, sized.bytes());
  loaded.masters = Tensor(loaded.weights.data(), Dtype::f32, sized.shape());
  parameters.bind(loaded.masters, loaded.masters);  // nothing here writes gradients
}

std::string LoadedRun::weights_text() const {
  if (recipe.train.ema == 0) return "";
  return fmt::format(", {} weights (the others: --weights {})", averaged ? "averaged" : "last", other_weights());
}

RunTokens LoadedRun::tokens() const {
  const auto kept = data.find("tokenizer");
  if (recipe.data.kind != DataKind::tokens || kept == data.end()) return {recipe.data, "", ""};
  const std::string path = run + "/" + tokenizer_file;
  if (std::error_code none; !std::filesystem::exists(path, none))
    throw user_error("{}: is missing, but the run was trained with a tokenizer; put it back, from the data's source",
                     printable(path));
  std::string pieces = read_file(path);
  if (sha256_of_text(pieces) != kept->second)
    throw user_error("{}: is not the tokenizer that the run was trained with; put that back, from the data's source",
                     printable(path));
  return {recipe.data, std::move(pieces), path};
}

LoadedRun load_run(const std::string& run, const std::string& weights, const CheckpointChoice& choice) {
  if (is_pretrained(run)) {
    if (weights != "automatic" || choice.kind != CheckpointChoice::Kind::last)
      throw user_error("{}: is a folder in the layout of Hugging Face, which holds one set of weights; leave out {}",
                       printable(run), weights != "automatic" ? "--weights" : "--checkpoint");
    return load_pretrained(run);
  }
  static_cast<void>(id_of_run(run, ""));  // refuses checkpoints of two runs
  const CheckpointState state = read_state(run, choice, false);
  LoadedRun loaded;
  loaded.run = run;
  loaded.recipe = recipe_of_run(state.recipe, run + "/recipe.yaml");
  loaded.model = loaded.recipe.model->make_model();
  const bool keeps_average = loaded.recipe.train.ema > 0;
  if (weights == "average" && !keeps_average)
    throw user_error("{}: the run keeps no average of its weights (train.ema is 0); use --weights last", run);
  loaded.averaged = keeps_average && weights != "last";
  make_room(loaded);
  loaded.step = load_weights(run, loaded.model->parameters(), loaded.averaged, choice).step;
  enter_stage(*loaded.model, loaded.stage());
  loaded.data = state.data;
  tell_objective(loaded.recipe, loaded.data);
  return loaded;
}

LoadedRun load_run_on_ranks(const std::string& run, const std::string& weights, const CheckpointChoice& choice,
                            Communicator& comm) {
  LoadedRun loaded;
  if (comm.rank() == 0) loaded = load_run(run, weights, choice);
  if (comm.size() == 1) return loaded;
  const std::string recipe = comm.broadcast_text(loaded.recipe.resolved, 0);
  comm.broadcast(&loaded.step, sizeof loaded.step, 0);
  comm.broadcast(&loaded.averaged, sizeof loaded.averaged, 0);
  send_record(loaded.data, comm);
  if (comm.rank() != 0) {
    loaded.run = run;
    loaded.recipe = recipe_of_run(recipe, run + "/recipe.yaml");
    tell_objective(loaded.recipe, loaded.data);
    loaded.model = loaded.recipe.model->make_model();
    make_room(loaded);
    enter_stage(*loaded.model, loaded.stage());
  }
  comm.broadcast(loaded.masters.data(), static_cast<std::int64_t>(loaded.masters.bytes()), 0);
  return loaded;
}

std::vector<Change> changes_since_checkpoint(const std::string& run, const Recipe& recipe, const DataRecord& data) {
  const CheckpointState state = read_newest_state(run, false);
  const Recipe begun = recipe_of_run(state.recipe, run + "/recipe.yaml");
  const auto before = settings_by_key(begun), now = settings_by_key(recipe);
  std::vector<Change> changes;
  const auto compare = [&](const std::string& key, const std::string& old, const std::string& value) {
    if (old == value || may_change(key)) return;
    // Every row of a batch remembers what it has read, so there can be no other number of them.
    if (must_stay(key) || (key == "train.global_batch" && begun.model->remembers()))
      throw user_error("{} is {}, but the run in {} began with {}; resume it with its own recipe, or start another run",
                       key, value, run, old);
    changes.push_back({key, old, value});
  };
  for (const auto& [key, value] : now) compare(key, before.contains(key) ? before.at(key) : not_set, value);
  for (const auto& [key, value] : before)
    if (!now.contains(key)) compare(key, value, not_set);
  if (recipe.train.ema > 0 && begun.train.ema == 0)
    throw user_error("train.ema is {}, but the run in {} keeps no average of its weights; set train.ema: 0",
                     recipe.train.ema, run);
  if (recipe.train.steps < state.step)
    throw user_error("train.steps is {}, but the run in {} has done {} already; raise train.steps to continue it",
                     recipe.train.steps, run, state.step);
  if (state.data.empty())
    spdlog::info("the checkpoints in {} do not say which data they were trained on; the next ones will", run);
  else if (const std::string other = other_tokenizer(state.data, data); !other.empty())
    throw user_error("{}: {}; resume the run in {} with data of its tokenizer, or start another run",
                     printable(recipe.data.path), other, run);
  compare_data(state.data, data, changes);
  return changes;
}

}  // namespace longstride
