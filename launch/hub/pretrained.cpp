#include "launch/hub/pretrained.h"

#include <algorithm>
#include <filesystem>
#include <initializer_list>
#include <utility>
#include <vector>

#include "datasets/dataset.h"
#include "framework/core/errors.h"
#include "framework/core/files/files.h"
#include "framework/core/files/inside.h"
#include "framework/core/files/safetensors.h"
#include "framework/core/text/json.h"
#include "framework/core/text/printable.h"
#include "launch/console/new_folders.h"
#include "launch/hub/package_files.h"
#include "launch/hub/weight_files.h"
#include "launch/recipe/settings_tree.h"
#include "launch/run/run_data.h"

namespace longstride {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr const char* model_class = "LongstrideForCausalLM";
constexpr int vocabulary_of_bytes = 256;  // the first id beyond a vocabulary comes before every sequence

// The last part of a path, even if it ends with a slash.
std::string name_of_folder(const std::string& path) {
  const fs::path whole = fs::absolute(path).lexically_normal();
  return (whole.has_filename() ? whole : whole.parent_path()).filename().string();
}

Json read_object(const std::string& path) {
  Json object = parse_json<Json>(read_at_most(path));
  if (!object.is_object()) throw user_error("{}: is not a JSON object", printable(path));
  return object;
}

// Null: `object` is none, or has no such key.
Json entry_of(const Json& object, const char* key) { return object.is_object() ? object.value(key, Json()) : Json(); }

std::int64_t whole_in(const Json& object, const char* key) {
  constexpr std::int64_t most = std::int64_t{1} << 40;
  const Json value = entry_of(object, key);
  return value.is_number_unsigned()
             ? static_cast<std::int64_t>(std::min(value.get<std::uint64_t>(), std::uint64_t{most}))
             : 0;
}

// The code in the folder is not run, so it must not claim to compute anything else.
void refuse_other_code(const std::string& path, const Json& config) {
  const Json type = entry_of(config, "model_type"), classes = entry_of(config, "architectures");
  const Json code = entry_of(entry_of(config, "auto_map"), "AutoModelForCausalLM");
  const bool ours =
      type == "longstride" && (classes.is_null() || classes == Json::array({model_class})) &&
      (code.is_null() ||
       (code.is_string() && code.get<std::string>().ends_with(std::string("modeling_longstride.") + model_class)));
  if (!ours)
    throw user_error("{}: is not of a model that Longstride wrote (export --hf, or save_pretrained), whose code is {}",
                     printable(path), model_class);
}

// The recipe of the settings, as JSON, which is YAML; in one line, so that mistakes have no other.
std::string recipe_of(const Json& config, const std::string& name, std::int64_t step) {
  Json model = entry_of(config, "settings");
  const Json origin = entry_of(config, "origin"), run = entry_of(origin, "run"), kind = entry_of(origin, "data");
  Json data = {{"kind", kind.is_string() ? kind : Json("bytes")},
               {"path", unnamed_data},
               {"context", entry_of(model, "context")}};
  if (model.is_object()) {
    if (const Json vocabulary = entry_of(model, "vocabulary"); !vocabulary.is_null()) data["vocabulary"] = vocabulary;
    for (const char* key : {"context", "picture", "vocabulary"}) model.erase(key);
    if (!entry_of(model, "memory").is_null()) data["order"] = "streams";
  }
  return Json{{"name", run.is_string() && !run.get<std::string>().empty() ? run : Json(name)},
              {"data", std::move(data)},
              {"model", std::move(model)},
              {"train", {{"steps", std::max<std::int64_t>(step, 1)}, {"global_batch", 1}, {"lr", 1e-3}}}}
      .dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::string config_file(const std::string& folder) { return folder + "/config.json"; }

// Numbers and words as JSON has them.
Json json_of(const Setting& s) {
  switch (s.kind) {
    case Setting::Kind::null:
      return nullptr;
    case Setting::Kind::scalar: {
      if (s.quoted) return s.scalar;
      const Json value = parse_json<Json>(s.scalar);
      return value.is_discarded() ? Json(s.scalar) : value;
    }
    case Setting::Kind::list: {
      Json out = Json::array();
      for (const Setting& item : s.items) out.push_back(json_of(item));
      return out;
    }
    case Setting::Kind::map:
      break;
  }
  Json out = Json::object();
  for (const auto& [key, value] : s.entries) out[key] = json_of(value);
  return out;
}

Json model_settings(const Recipe& recipe) {
  const Setting root = parse_settings(recipe.resolved, recipe.name);
  Json settings = json_of(*root.find("model"));
  settings.erase("recompute");  // says what training stores, not what the model computes
  const Geometry& g = recipe.model->geometry;
  if (const Setting* vocabulary = find_setting(root, "data.vocabulary")) settings["vocabulary"] = json_of(*vocabulary);
  settings["context"] = recipe.data.context;
  settings["picture"] = g.rows > 0 ? Json{g.rows, g.columns, g.channels} : Json::array();
  return settings;
}

Json config_for(const LoadedRun& loaded, const std::string& run) {
  Json origin = {{"run", run},
                 {"step", loaded.step},
                 {"weights", loaded.weights_name()},
                 {"data", name_of(loaded.recipe.data.kind)}};
  if (const auto kept = loaded.data.find("tokenizer"); kept != loaded.data.end()) origin["tokenizer"] = kept->second;
  if (*loaded.other_weights() != '\0') origin["other_weights"] = loaded.other_weights();
  return {{"architectures", Json::array({model_class})},
          {"auto_map",
           {{"AutoConfig", "configuration_longstride.LongstrideConfig"},
            {"AutoModelForCausalLM", std::string("modeling_longstride.") + model_class}}},
          {"model_type", "longstride"},
          {"torch_dtype", "float32"},
          {"origin", std::move(origin)},
          {"settings", model_settings(loaded.recipe)}};
}

void write_model_file(const std::string& path, const ParameterSet& parameters) {
  std::vector<TensorEntry> entries;
  for (const Parameter& p : parameters.all()) entries.push_back({"model." + p.name, Dtype::f32, p.shape});
  SafetensorsWriter writer(path, std::move(entries), {{"format", "pt"}});
  for (const Parameter& p : parameters.all()) writer.write(p.master);
  writer.finish();
}

void refuse_inexpressible(const LoadedRun& loaded, const std::string& run) {
  const Stage* const stage = loaded.stage();
  const std::string problem = stage != nullptr && !stage->window.empty()
                                  ? "train.stages gives its attention other windows than the recipe's model"
                                  : loaded.recipe.model->problem_in_python();
  if (!problem.empty())
    throw user_error("{}: cannot be written for transformers: {}; `longstride export --output` writes its weights",
                     printable(run), problem);
}

// The name that a file of the package gets; empty: it is not copied. Bytes and pieces have a tokenizer each, and its
// configuration one name.
std::string name_in_folder(const PackageFile& file, DataKind kind, const RunTokens& tokens) {
  const std::string name(file.name);
  if (name.starts_with("tokenizer")) return kind == DataKind::bytes ? name : "";
  if (!name.starts_with("tokenization")) return name;
  if (tokens.model().empty()) return "";
  return name == "tokenization_config.json" ? "tokenizer_config.json" : name;
}

}  // namespace

CheckpointState read_pretrained(const std::string& folder) {
  const std::string path = config_file(folder), trainer = folder + "/trainer_state.json";
  const Json config = read_object(path);
  refuse_other_code(path, config);
  CheckpointState state;
  state.step = whole_in(entry_of(config, "origin"), "step");
  if (std::error_code none; fs::exists(trainer, none)) {
    const Json trained = read_object(trainer);
    state.step += whole_in(trained, "global_step");
    state.tokens_seen = whole_in(trained, "num_input_tokens_seen");
  }
  const Recipe recipe = recipe_of_run(recipe_of(config, name_of_folder(folder), state.step), path);
  const Geometry& g = recipe.model->geometry;
  const Json picture = entry_of(entry_of(config, "settings"), "picture");
  if (picture.is_array() && picture != (g.rows > 0 ? Json{g.rows, g.columns, g.channels} : Json::array()))
    throw user_error("{}: settings.picture is {}, but must be the rows, columns and channels of {} bytes of {}",
                     printable(path), printable(picture.dump()), recipe.data.context, name_of(recipe.data.kind));
  state.recipe = recipe.resolved;
  state.data = data_of_pretrained(folder);
  return state;
}

DataRecord data_of_pretrained(const std::string& folder) {
  const Json origin = entry_of(read_object(config_file(folder)), "origin"), kept = entry_of(origin, "tokenizer");
  const std::string path = folder + "/" + tokenizer_file;
  std::error_code none;
  if (entry_of(origin, "data") != name_of(DataKind::tokens)) return {};
  if (kept.is_string()) return {{"tokenizer", kept.get<std::string>()}};
  if (!fs::is_regular_file(path, none)) return {};
  const std::string model = read_file(path);
  static_cast<void>(PieceTable(model, printable(path)));
  return {{"tokenizer", sha256_of_text(model)}};
}

LoadedRun load_pretrained(const std::string& folder) {
  const CheckpointState state = read_pretrained(folder);
  LoadedRun loaded;
  loaded.recipe = recipe_of_run(state.recipe, config_file(folder));
  loaded.model = loaded.recipe.model->make_model();
  loaded.step = state.step;
  loaded.run = folder;
  loaded.data = state.data;
  if (std::error_code none; fs::exists(folder + "/" + tokenizer_file, none))
    static_cast<void>(loaded.tokens());  // refuses another
  ParameterSet& parameters = loaded.model->parameters();
  const std::string shown = printable(folder);
  const WeightFiles files(weight_files(folder, shown), parameters, shown);
  for (const Parameter& p : parameters.all()) {
    const auto* found = files.find(p.name);
    if (found == nullptr || !(found->second->shape == p.shape))
      throw user_error("{}: the weights are not those of config.json: {} is {} there and {} in its settings", shown,
                       p.name, found == nullptr ? "missing" : found->second->shape.text(), p.shape.text());
  }
  for (const auto& [name, found] : files.tensors())
    if (find_parameter(parameters, name) == nullptr)
      throw user_error("{}: the weights are not those of config.json, whose model has no {} {}", shown,
                       printable_beginning(name), found.second->shape.text());
  make_room(loaded);
  for (const Parameter& p : parameters.all())
    std::ranges::copy(WeightFiles::values(*files.find(p.name)), p.master.as<float>());
  refuse_infinite(parameters, shown, "the model is unusable");
  return loaded;
}

void write_pretrained(const LoadedRun& loaded, const std::string& run, const std::string& folder) {
  refuse_inexpressible(loaded, run);
  std::error_code none;
  if (fs::exists(folder, none) && !(fs::is_directory(folder, none) && fs::is_empty(folder, none)))
    throw user_error("{}: exists already and is not an empty folder; choose another with --hf, or remove it",
                     printable(folder));
  const RunTokens tokens = loaded.tokens();
  const Json config = config_for(loaded, name_of_folder(run));
  const Json generation = {{"bos_token_id", config.at("settings").value("vocabulary", vocabulary_of_bytes)},
                           {"do_sample", true},
                           {"max_length", loaded.recipe.data.context + 1},
                           {"use_cache", false}};
  fs::path target = fs::absolute(folder).lexically_normal();
  if (!target.has_filename()) target = target.parent_path();
  NewFolders above;
  if (const std::error_code refused = above.make(target.parent_path()))
    throw user_error("{}: cannot be created ({}); choose another folder with --hf", printable(folder),
                     refused.message());
  AtomicDirectory made(target.string());
  const auto file = [&](std::string_view of) { return made.path() + "/" + std::string(of); };
  for (const PackageFile& one : package_files())
    if (const std::string name = name_in_folder(one, loaded.recipe.data.kind, tokens); !name.empty())
      write_file_atomically(file(name), one.content);
  keep_tokenizer(made.path(), tokens.model());
  write_file_atomically(file("config.json"), config.dump(2) + "\n");
  write_file_atomically(file("generation_config.json"), generation.dump(2) + "\n");
  write_model_file(file("model.safetensors"), loaded.model->parameters());
  made.commit();
}

}  // namespace longstride
