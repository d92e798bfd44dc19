#include "launch/run/begin_from.h"

#include <fmt/ranges.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <set>

#include "framework/core/errors.h"
#include "framework/core/text/printable.h"
#include "launch/hub/pretrained.h"
#include "launch/hub/weight_files.h"

namespace longstride {
namespace {

namespace fs = std::filesystem;

std::string shown_from(const BeginFrom& from) { return "--from " + printable(from.run); }

// The origin of a parameter that `there` lacks: a part of another one, such as the projections of global rows.
const Parameter* origin_of(const Parameter& p, const ParameterSet& there) {
  const Parameter* const origin = p.init.like.empty() ? nullptr : find_parameter(there, p.init.like);
  return origin != nullptr && p.init.like_from + p.shape.count() <= origin->shape.count() ? origin : nullptr;
}

// True if the rows of `other`, again and again, are as many as wanted.
bool repeats(const Parameter& p, const Shape& other) {
  return p.shape.rank == 2 && other.rank == 2 && p.shape[1] == other[1];
}

// Empty if both have the same parameters, but for those that may be new or longer here.
std::string first_difference(const ParameterSet& there, const ParameterSet& here, const BeginFrom& from) {
  for (const Parameter& p : here.all()) {
    const Parameter* const other = find_parameter(there, p.name);
    if (from.is_fresh(p.name) || (other == nullptr && (p.may_be_new || origin_of(p, there) != nullptr))) continue;
    if (other == nullptr) return fmt::format("{} {} is missing there", p.name, p.shape.text());
    if (from.is_repeated(p.name) && repeats(p, other->shape)) continue;
    if (!(other->shape == p.shape))
      return fmt::format("{} is {} there and {} in the recipe", p.name, other->shape.text(), p.shape.text());
  }
  for (const Parameter& p : there.all())
    if (from.fresh.empty() && find_parameter(here, p.name) == nullptr)
      return fmt::format("{} {} is missing in the recipe's model", p.name, p.shape.text());
  return "";
}

// A component that no parameter belongs to is a mistake.
void check_components(const BeginFrom& from, const ParameterSet& parameters) {
  const auto none = [&](const auto& belongs) {
    return std::none_of(parameters.all().begin(), parameters.all().end(), belongs);
  };
  const auto refuse = [&](const char* option, const std::string& name) {
    std::set<std::string> known;
    for (const Parameter& p : parameters.all()) known.insert(p.name.substr(0, p.name.find('.')));
    throw user_error("{} {}: the recipe's model has no parameters of that name; its components are {}", option,
                     printable(name), fmt::join(known, ", "));
  };
  for (const std::string& name : from.fresh)
    if (none([&](const Parameter& p) { return BeginFrom{.fresh = {name}}.is_fresh(p.name); })) refuse("--new", name);
  for (const std::string& name : from.repeated)
    if (none([&](const Parameter& p) { return BeginFrom{.repeated = {name}}.is_repeated(p.name); }))
      refuse("--repeat", name);
}

void refuse_other_parameters(const BeginFrom& from, const LoadedRun& loaded, const Recipe& recipe) {
  const auto model = recipe.model->make_model();
  check_components(from, model->parameters());
  const std::string difference = first_difference(loaded.model->parameters(), model->parameters(), from);
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

void refuse_choices(const BeginFrom& from) {
  const bool last = from.checkpoint.kind == CheckpointChoice::Kind::last;
  if (last && from.weights == "automatic") return;
  std::error_code none;
  throw user_error("--from {} is a {} of weights, which has no checkpoints or averages to choose from; leave out {}",
                   printable(from.run), fs::is_directory(from.run, none) ? "folder" : "file",
                   last ? "--weights" : "--checkpoint");
}

// A tensor of which the parameter is a part.
const WeightFiles::InFile* part_of(const WeightFiles& files, const Parameter& p) {
  const auto* origin = p.init.like.empty() ? nullptr : files.find(p.init.like);
  return origin != nullptr && p.init.like_from + p.shape.count() <= origin->second->shape.count() ? origin : nullptr;
}

void refuse_others(const WeightFiles& files, const BeginFrom& from, const ParameterSet& parameters) {
  const auto refuse = [&](const std::string& difference) {
    throw user_error(
        "--from {}: the weights do not fit the recipe's model: {}; set the keys of model as they were for these "
        "weights",
        printable(from.run), difference);
  };
  for (const Parameter& p : parameters.all()) {
    if (from.is_fresh(p.name)) continue;
    const auto* found = files.find(p.name);
    if (found == nullptr && (p.may_be_new || part_of(files, p) != nullptr)) continue;
    if (found == nullptr) refuse(fmt::format("{} {} is missing there", p.name, p.shape.text()));
    const Shape& shape = found->second->shape;
    if (from.is_repeated(p.name) && repeats(p, shape)) continue;
    if (!(shape == p.shape))
      refuse(fmt::format("{} is {} there and {} in the recipe", p.name, shape.text(), p.shape.text()));
  }
  for (const auto& [name, found] : files.tensors()) {
    if (find_parameter(parameters, name) != nullptr) continue;
    if (from.fresh.empty())
      refuse(
          fmt::format("{} {} is missing in the recipe's model", printable_beginning(name), found.second->shape.text()));
    spdlog::info("  {:<12}{}", "left out", printable_beginning(name));
  }
}

// The parameter, whose rows are those of the file, again and again. One that the file lacks begins as a part of
// another, or stays as it starts.
void read_parameter(const WeightFiles& files, const BeginFrom& from, const Parameter& p) {
  if (from.is_fresh(p.name)) return;
  const auto* found = files.find(p.name);
  const auto* whole = found != nullptr ? found : part_of(files, p);
  if (whole == nullptr) return;
  const std::vector<float> stored = WeightFiles::values(*whole);
  const std::size_t first = found != nullptr ? 0 : static_cast<std::size_t>(p.init.like_from),
                    count = static_cast<std::size_t>(p.shape.count());
  for (std::size_t at = 0; at < count; at += stored.size() - first)
    std::copy_n(stored.data() + first, std::min(stored.size() - first, count - at), p.master.as<float>() + at);
}

// Files written by another program, or a checkpoint's. The model that reads them is the recipe's.
LoadedRun load_files(const BeginFrom& from, const std::vector<std::string>& paths, const Recipe& recipe) {
  refuse_choices(from);
  LoadedRun loaded;
  loaded.recipe = recipe;
  loaded.model = recipe.model->make_model();
  check_components(from, loaded.model->parameters());
  ParameterSet& parameters = loaded.model->parameters();
  const WeightFiles files(paths, parameters, shown_from(from));
  refuse_others(files, from, parameters);
  loaded.weights = Block(Device::cpu, static_cast<std::size_t>(parameters.flat_size()) * sizeof(float));
  loaded.masters = Tensor(loaded.weights.data(), Dtype::f32, {parameters.flat_size()});
  parameters.bind(loaded.masters, loaded.masters);  // nothing here writes gradients
  parameters.initialise(recipe.train.seed);
  for (const Parameter& p : parameters.all()) read_parameter(files, from, p);
  refuse_infinite(parameters, shown_from(from), "training cannot begin with them");
  if (is_pretrained(from.run)) loaded.data = data_of_pretrained(from.run);
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
  if (const std::vector<std::string> files = weight_files(from.run, shown_from(from)); !files.empty())
    return load_files(from, files, recipe);
  if (from.run.ends_with(".safetensors") && !fs::exists(from.run))
    throw user_error("--from {}: there is no such file; give a safetensors file or the directory of a run",
                     printable(from.run));
  LoadedRun loaded = load_run(from.run, from.weights, from.checkpoint);
  refuse_other_parameters(from, loaded, recipe);
  return loaded;
}

std::string origin_text(const BeginFrom& from, const LoadedRun& loaded) {
  const std::string path = fs::absolute(from.run).lexically_normal().string();
  if (!weight_files(from.run, shown_from(from)).empty()) return path;
  return fmt::format("{}, step {}, {} weights", path, loaded.step, loaded.averaged ? "averaged" : "last");
}

bool BeginFrom::is_fresh(const std::string& parameter) const {
  return std::any_of(fresh.begin(), fresh.end(),
                     [&](const std::string& name) { return parameter.starts_with(name + "."); });
}

bool BeginFrom::is_repeated(const std::string& parameter) const {
  return std::any_of(repeated.begin(), repeated.end(),
                     [&](const std::string& name) { return parameter == name || parameter == name + ".weight"; });
}

std::vector<std::string> left_out(const LoadedRun& loaded, const ParameterSet& parameters) {
  std::vector<std::string> names;
  for (const Parameter& p : loaded.model->parameters().all())
    if (find_parameter(parameters, p.name) == nullptr) names.push_back(p.name);
  return names;
}

namespace {

void copy_weights(const LoadedRun& loaded, const BeginFrom& from, Parameter& p) {
  const ParameterSet& there = loaded.model->parameters();
  const Parameter *const same = find_parameter(there, p.name), *const source =
                                                                   same != nullptr ? same : origin_of(p, there);
  if (source == nullptr && p.may_be_new) return;
  LONGSTRIDE_CHECK(source != nullptr, "weights that do not fit");
  const std::size_t first = same != nullptr ? 0 : static_cast<std::size_t>(p.init.like_from) * sizeof(float),
                    here = p.master.bytes(), given = source->master.bytes() - first;
  LONGSTRIDE_CHECK(same == nullptr || given == here || from.is_repeated(p.name), "{} of another shape", p.name);
  for (std::size_t at = 0; at < here; at += given)
    std::memcpy(p.master.as<std::byte>() + at, source->master.as<std::byte>() + first, std::min(given, here - at));
}

}  // namespace

void hand_over_weights(const LoadedRun* loaded, const BeginFrom& from, ParameterSet& parameters, Communicator& comm) {
  for (Parameter& p : parameters.all()) {
    if (loaded != nullptr && !from.is_fresh(p.name)) copy_weights(*loaded, from, p);
    comm.broadcast(p.master.data(), static_cast<std::int64_t>(p.master.bytes()), 0);
  }
}

}  // namespace longstride
