#include "launch/run/begin_from.h"

#include <fmt/ranges.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <deque>
#include <filesystem>
#include <map>
#include <set>

#include "framework/core/errors.h"
#include "framework/core/exact_conversion.h"
#include "framework/core/files/inside.h"
#include "framework/core/files/safetensors.h"
#include "framework/core/text/json.h"
#include "framework/core/text/printable.h"

namespace longstride {
namespace {

namespace fs = std::filesystem;

const Parameter* find(const ParameterSet& parameters, const std::string& name) {
  const auto& all = parameters.all();
  const auto found = std::find_if(all.begin(), all.end(), [&](const Parameter& p) { return p.name == name; });
  return found == all.end() ? nullptr : &*found;
}

// The origin of a parameter that `there` lacks: a part of another one, such as the projections of global rows.
const Parameter* origin_of(const Parameter& p, const ParameterSet& there) {
  const Parameter* const origin = p.init.like.empty() ? nullptr : find(there, p.init.like);
  return origin != nullptr && p.init.like_from + p.shape.count() <= origin->shape.count() ? origin : nullptr;
}

// True if the rows of `other`, again and again, are as many as wanted.
bool repeats(const Parameter& p, const Shape& other) {
  return p.shape.rank == 2 && other.rank == 2 && p.shape[1] == other[1];
}

// Empty if both have the same parameters, but for those that may be new or longer here.
std::string first_difference(const ParameterSet& there, const ParameterSet& here, const BeginFrom& from) {
  for (const Parameter& p : here.all()) {
    const Parameter* const other = find(there, p.name);
    if (from.is_fresh(p.name) || (other == nullptr && (p.may_be_new || origin_of(p, there) != nullptr))) continue;
    if (other == nullptr) return fmt::format("{} {} is missing there", p.name, p.shape.text());
    if (from.is_repeated(p.name) && repeats(p, other->shape)) continue;
    if (!(other->shape == p.shape))
      return fmt::format("{} is {} there and {} in the recipe", p.name, other->shape.text(), p.shape.text());
  }
  for (const Parameter& p : there.all())
    if (from.fresh.empty() && find(here, p.name) == nullptr)
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

// Weights in formats that are not read. A pickle begins with its protocol, a safetensors file with a length, whose
// third byte is then 0.
void refuse_other_formats(const std::string& path) {
  const std::string head = read_beginning(path, 256);
  const auto is = [&](const std::string& beginning) { return head.starts_with(beginning); };
  const bool zip = is("PK\x03\x04"),
             pickle = head.size() > 2 && is("\x80") && head[1] >= 2 && head[1] <= 5 && head[2] != 0;
  if (pickle || (zip && head.find("data.pkl") != std::string::npos))
    throw user_error(
        "--from {0}: is a PyTorch checkpoint, a pickle, which may run any program when it is read; write its tensors "
        "with safetensors.torch.save_file(torch.load(\"{0}\", weights_only=True), \"weights.safetensors\") and give "
        "that "
        "file",
        printable(path));
  const char* const what = zip             ? "a ZIP archive"
                           : is("\x89HDF") ? "an HDF5 file"
                           : is("GGUF")    ? "a GGUF file"
                                           : nullptr;
  if (what != nullptr)
    throw user_error(
        "--from {}: is {}, but weights are read from safetensors files; convert it, or give the directory of a run",
        printable(path), what);
}

// transformers divides a large model between files and lists them in an index. The cache of downloads has links to all
// of them, and these are followed.
std::vector<std::string> files_in_index(const std::string& folder, const std::string& index) {
  const nlohmann::json content = parse_json(read_at_most(index));
  const bool maps = content.is_object() && content.contains("weight_map") && content.at("weight_map").is_object();
  const nlohmann::json map = maps ? content.at("weight_map") : nlohmann::json::object();
  std::set<std::string> names;
  for (const nlohmann::json& file : map) {
    const std::string name = file.is_string() ? file.get<std::string>() : "";
    if (name.empty() || name.front() == '.' || name.find('/') != std::string::npos) return {};
    names.insert(folder + "/" + name);
  }
  return {names.begin(), names.end()};
}

// The files of weights: `from` itself, or those of a folder that save_pretrained has written. None: it names a run.
std::vector<std::string> files_of(const BeginFrom& from) {
  std::error_code none;
  if (fs::is_regular_file(from.run, none)) return {from.run};
  const std::string config = from.run + "/config.json", whole = from.run + "/model.safetensors",
                    index = whole + ".index.json";
  if (!fs::is_regular_file(config, none) || fs::is_directory(from.run + "/checkpoints", none)) return {};
  const nlohmann::json settings = parse_json(read_at_most(config));
  const nlohmann::json type = settings.is_object() ? settings.value("model_type", nlohmann::json()) : nlohmann::json();
  if (type == "longformer" || type == "big_bird")
    throw user_error(
        "--from {}: is a model of transformers; make a file of its weights with longstride.from_transformers, in "
        "Python",
        printable(from.run));
  if (type != "longstride")
    throw user_error("--from {}: its config.json is not of a model that Longstride wrote (save_pretrained)",
                     printable(from.run));
  if (fs::exists(whole, none) || !fs::exists(index, none)) return {whole};
  const std::vector<std::string> files = files_in_index(from.run, index);
  if (files.empty())
    throw user_error("{}: must be JSON whose 'weight_map' names a file of this folder for every tensor",
                     printable(index));
  return files;
}

void refuse_choices(const BeginFrom& from) {
  const bool last = from.checkpoint.kind == CheckpointChoice::Kind::last;
  if (last && from.weights == "automatic") return;
  std::error_code none;
  throw user_error("--from {} is a {} of weights, which has no checkpoints or averages to choose from; leave out {}",
                   printable(from.run), fs::is_directory(from.run, none) ? "folder" : "file",
                   last ? "--weights" : "--checkpoint");
}

// The tensors of some files by the names of parameters; save_pretrained puts "model." before them.
class WeightFiles {
 public:
  WeightFiles(const std::vector<std::string>& paths, const ParameterSet& parameters) {
    constexpr std::string_view prefix = "model.";
    for (const std::string& path : paths) {
      refuse_other_formats(path);
      const SafetensorsReader& file = files_.emplace_back(path);
      for (const TensorEntry& entry : file.entries()) {
        const bool prefixed = entry.name.starts_with(prefix) && find(parameters, entry.name) == nullptr;
        const std::string name = prefixed ? entry.name.substr(prefix.size()) : entry.name;
        if (!tensors_.emplace(name, std::pair(&file, &entry)).second)
          throw user_error("{}: holds tensor '{}', which occurs twice", printable(path), printable_beginning(name));
      }
    }
  }

  void refuse_others(const BeginFrom& from, const ParameterSet& parameters) const {
    const auto refuse = [&](const std::string& difference) {
      throw user_error(
          "--from {}: the weights do not fit the recipe's model: {}; set the keys of model as they were for these "
          "weights",
          printable(from.run), difference);
    };
    for (const Parameter& p : parameters.all()) {
      if (from.is_fresh(p.name)) continue;
      const auto found = tensors_.find(p.name);
      if (found == tensors_.end() && (p.may_be_new || part_of(p) != nullptr)) continue;
      if (found == tensors_.end()) refuse(fmt::format("{} {} is missing there", p.name, p.shape.text()));
      const Shape& shape = found->second.second->shape;
      if (from.is_repeated(p.name) && repeats(p, shape)) continue;
      if (!(shape == p.shape))
        refuse(fmt::format("{} is {} there and {} in the recipe", p.name, shape.text(), p.shape.text()));
    }
    for (const auto& [name, found] : tensors_) {
      if (find(parameters, name) != nullptr) continue;
      if (from.fresh.empty())
        refuse(fmt::format("{} {} is missing in the recipe's model", printable_beginning(name),
                           found.second->shape.text()));
      spdlog::info("  {:<12}{}", "left out", printable_beginning(name));
    }
  }

  // The parameter, whose rows are those of the file, again and again. One that the file lacks begins as a part of
  // another, or stays as it starts.
  void read(const BeginFrom& from, const Parameter& p) const {
    if (from.is_fresh(p.name)) return;
    const auto found = tensors_.find(p.name);
    const TensorInFile* const whole = found != tensors_.end() ? &found->second : part_of(p);
    if (whole == nullptr) return;
    const std::vector<float> stored = values(*whole);
    const std::size_t first = found != tensors_.end() ? 0 : static_cast<std::size_t>(p.init.like_from),
                      count = static_cast<std::size_t>(p.shape.count());
    for (std::size_t at = 0; at < count; at += stored.size() - first)
      std::copy_n(stored.data() + first, std::min(stored.size() - first, count - at), p.master.as<float>() + at);
  }

 private:
  using TensorInFile = std::pair<const SafetensorsReader*, const TensorEntry*>;

  const TensorInFile* part_of(const Parameter& p) const {
    const auto origin = p.init.like.empty() ? tensors_.end() : tensors_.find(p.init.like);
    if (origin == tensors_.end()) return nullptr;
    return p.init.like_from + p.shape.count() <= origin->second.second->shape.count() ? &origin->second : nullptr;
  }

  // As f32, to which f64 is rounded.
  static std::vector<float> values(const TensorInFile& from) {
    const auto& [file, entry] = from;
    std::vector<float> out(static_cast<std::size_t>(entry->shape.count()));
    const Tensor as_f32(out.data(), Dtype::f32, entry->shape);
    const bool other = entry->dtype == Dtype::f64 || entry->dtype == Dtype::bf16 || entry->dtype == Dtype::f16;
    if (!other) {
      file->read(entry->name, as_f32);
      return out;
    }
    const Block memory(Device::cpu, Tensor(nullptr, entry->dtype, entry->shape).bytes());
    const Tensor stored(memory.data(), entry->dtype, entry->shape);
    file->read(entry->name, stored);
    if (entry->dtype == Dtype::f64)
      std::transform(stored.as<const double>(), stored.as<const double>() + stored.count(), out.begin(),
                     [](double value) { return static_cast<float>(value); });
    else
      convert_exactly(stored, as_f32);
    return out;
  }

  std::deque<SafetensorsReader> files_;
  std::map<std::string, TensorInFile> tensors_;
};

// Files written by another program, or a checkpoint's. The model that reads them is the recipe's.
LoadedRun load_files(const BeginFrom& from, const std::vector<std::string>& paths, const Recipe& recipe) {
  refuse_choices(from);
  LoadedRun loaded;
  loaded.recipe = recipe;
  loaded.model = recipe.model->make_model();
  check_components(from, loaded.model->parameters());
  ParameterSet& parameters = loaded.model->parameters();
  const WeightFiles files(paths, parameters);
  files.refuse_others(from, parameters);
  loaded.weights = Block(Device::cpu, static_cast<std::size_t>(parameters.flat_size()) * sizeof(float));
  loaded.masters = Tensor(loaded.weights.data(), Dtype::f32, {parameters.flat_size()});
  parameters.bind(loaded.masters, loaded.masters);  // nothing here writes gradients
  parameters.initialise(recipe.train.seed);
  for (const Parameter& p : parameters.all()) {
    files.read(from, p);
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
  if (const std::vector<std::string> files = files_of(from); !files.empty()) return load_files(from, files, recipe);
  if (from.run.ends_with(".safetensors") && !fs::exists(from.run))
    throw user_error("--from {}: there is no such file; give a safetensors file or the directory of a run",
                     printable(from.run));
  LoadedRun loaded = load_run(from.run, from.weights, from.checkpoint);
  refuse_other_parameters(from, loaded, recipe);
  return loaded;
}

std::string origin_text(const BeginFrom& from, const LoadedRun& loaded) {
  const std::string path = fs::absolute(from.run).lexically_normal().string();
  if (!files_of(from).empty()) return path;
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
    if (find(parameters, p.name) == nullptr) names.push_back(p.name);
  return names;
}

namespace {

void copy_weights(const LoadedRun& loaded, const BeginFrom& from, Parameter& p) {
  const ParameterSet& there = loaded.model->parameters();
  const Parameter *const same = find(there, p.name), *const source = same != nullptr ? same : origin_of(p, there);
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
