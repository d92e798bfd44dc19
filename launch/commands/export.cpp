// longstride export RECIPE: the initial weights and the first batches of a run, from which another implementation can
// start: DIR/initial.safetensors, DIR/batches.safetensors (the fields of a batch that the model reads, each with the
// steps before its own dimensions: tokens, u8, (steps, global batch, context)), DIR/recipe.yaml.
// longstride export RUN: the weights of a checkpoint, DIR/weights.safetensors, its recipe and, if asked for, the
// batches that come after it.
// longstride export RUN --hf FOLDER: the model for programs of Hugging Face (launch/hub/pretrained.h).
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>

#include "datasets/dataset.h"
#include "framework/core/device/memory.h"
#include "framework/core/errors.h"
#include "framework/core/files/files.h"
#include "framework/core/files/safetensors.h"
#include "framework/core/text/numbers.h"
#include "framework/core/text/printable.h"
#include "framework/train/stages.h"
#include "launch/commands/commands.h"
#include "launch/console/arguments.h"
#include "launch/console/json_output.h"
#include "launch/console/output.h"
#include "launch/hub/pretrained.h"
#include "launch/recipe/recipe.h"
#include "launch/run/run_data.h"
#include "launch/run/run_directory.h"

namespace longstride {
namespace {

namespace fs = std::filesystem;

struct ExportOptions {
  std::string source, output;  // source: a recipe file or a run directory
  std::string hf;              // folder for programs of Hugging Face; empty: none
  std::vector<std::string> overrides;
  std::string checkpoint, weights;  // choice among a run's weights; empty: not given
  std::int64_t steps = 0;           // 0: not given
  bool replace = false, json = false;
};
constexpr std::int64_t steps_of_recipe = 200;

void write_weights(const std::string& path, const ParameterSet& parameters) {
  std::vector<TensorEntry> entries;
  for (const Parameter& p : parameters.all()) entries.push_back({p.name, Dtype::f32, p.shape});
  SafetensorsWriter writer(path, std::move(entries), {{"format", "pt"}});
  for (const Parameter& p : parameters.all()) writer.write(p.master);
  writer.finish();
}

void write_initial_weights(const std::string& path, const Recipe& recipe) {
  const auto model = recipe.model->make_model();
  ParameterSet& parameters = model->parameters();
  const Shape flat = {parameters.flat_size()};
  const Block memory(Device::cpu, Tensor(nullptr, Dtype::f32, flat).bytes());
  const Tensor masters(memory.data(), Dtype::f32, flat);
  parameters.bind(masters, masters);  // nothing here writes gradients
  parameters.initialise(recipe.train.seed);
  write_weights(path, parameters);
}

// UserError, which names the `asked` ones, if stages change the rows of a step among `steps` steps after the first
// `done`, as one tensor holds them.
void check_steps(const Recipe& recipe, std::int64_t done, std::int64_t steps, std::int64_t asked) {
  const StepShape first = shape_at(recipe.train, done, recipe.data.context);
  for (std::int64_t step = 1; step < steps; ++step) {
    const StepShape now = shape_at(recipe.train, done + step, recipe.data.context);
    if (first.rows != now.rows || first.context != now.context)
      throw user_error("--steps is {}{}, but later stages of these read other numbers of bytes; choose at most {}",
                       asked > 0 ? asked : steps, asked > 0 ? "" : " by default", step);
  }
}

// Writes the rows that training reads in `steps` steps after the first `done`.
void write_batches(const std::string& path, const Dataset& dataset, const Recipe& recipe, std::int64_t done,
                   std::int64_t steps) {
  const auto data = open_rows(dataset, recipe);
  const StepShape first = shape_at(recipe.train, done, recipe.data.context);
  const BatchLayout layout(exported_fields(recipe), first.rows, first.context);
  const Block memory(Device::cpu, layout.bytes());
  const Batch rows = layout.at(memory.data());
  std::vector<TensorEntry> entries;
  std::vector<Block> fields;
  for (const auto& [name, field] : batch_fields) {
    const Tensor& one = rows.*field;
    if (!one.given()) continue;
    const Shape shape = one.rank() == 1 ? Shape{steps, one.size(0)} : Shape{steps, one.size(0), one.size(1)};
    fields.emplace_back(Device::cpu, Tensor(nullptr, one.dtype(), shape).bytes());
    entries.push_back({name, one.dtype(), shape});
  }
  for (std::int64_t step = 0; step < steps; ++step) {
    data->read(done + step, first.rows, 0, rows);
    auto to = fields.begin();
    for (const auto& [_, field] : batch_fields)
      if (const Tensor& one = rows.*field; one.given())
        std::memcpy((to++)->data() + static_cast<std::size_t>(step) * one.bytes(), one.data(), one.bytes());
  }
  SafetensorsWriter writer(path, entries, {{"format", "pt"}});
  for (std::size_t i = 0; i < entries.size(); ++i)
    writer.write(Tensor(fields[i].data(), entries[i].dtype, entries[i].shape));
  writer.finish();
}

constexpr const char *batches_file = "batches.safetensors", *initial_file = "initial.safetensors",
                     *weights_file = "weights.safetensors";
std::string file_in(const ExportOptions& o, const char* name) { return (fs::path(o.output) / name).string(); }

// Makes the folder, which is removed again if nothing is written. UserError if it holds a file of another export that
// this one would not replace.
NewFolders make_folder(const ExportOptions& o, const std::vector<std::string>& inputs,
                       const std::vector<const char*>& unwritten) {
  for (const char* name : unwritten)
    if (std::error_code absent; fs::exists(file_in(o, name), absent))
      throw user_error("{}: holds {} of another export; remove it or choose another folder with --output", o.output,
                       name);
  return make_output_folder(o.output, o.replace, inputs);
}

void export_recipe(const ExportOptions& o, Session& session) {
  for (const auto& [option, value] : {std::pair{"--checkpoint", o.checkpoint}, {"--weights", o.weights}})
    if (!value.empty())
      throw user_error("{} is {}, but {} is no run directory; name a run, or leave {} out", option, value, o.source,
                       option);
  const Recipe recipe = read_recipe(o.source, o.overrides);
  if (session.comm->rank() != 0) return;
  const std::int64_t steps = std::min(o.steps > 0 ? o.steps : steps_of_recipe, recipe.train.steps);
  check_steps(recipe, 0, steps, o.steps);
  const auto dataset = Dataset::open(recipe.data.path);
  const NewFolders made = make_folder(o, {o.source, recipe.data.path}, {weights_file});
  write_batches(file_in(o, batches_file), *dataset, recipe, 0, steps);
  write_initial_weights(file_in(o, initial_file), recipe);
  write_file_atomically(file_in(o, "recipe.yaml"), recipe.resolved);
  if (o.json) return print_json({{"output", o.output}, {"recipe", recipe.name}, {"steps", steps}});
  print_written(o.output,
                fmt::format("the initial weights and the batches of {} of {}", counted(steps, "step"), recipe.name));
}

LoadedRun load_exported(const ExportOptions& o) {
  return load_run(o.source, o.weights.empty() ? "automatic" : o.weights,
                  parse_checkpoint_choice(o.checkpoint.empty() ? "last" : o.checkpoint));
}

void export_pretrained(const ExportOptions& o, Session& session) {
  if (std::error_code none; fs::is_regular_file(o.source, none))
    throw user_error("--hf is {}, but {} is a recipe, which has no weights; name a run", printable(o.hf),
                     printable(o.source));
  const LoadedRun run = load_exported(o);
  if (session.comm->rank() != 0) return;
  write_pretrained(run, o.source, o.hf);
  const bool pieces = !run.tokens().model().empty(), lacks = run.recipe.data.kind == DataKind::tokens && !pieces;
  if (o.json) {
    nlohmann::ordered_json out = {{"output", o.hf},      {"recipe", run.recipe.name}, {"steps", 0},
                                  {"run", o.source},     {"step", run.step},          {"weights", run.weights_name()},
                                  {"tokenizer", nullptr}};
    if (pieces || run.recipe.data.kind == DataKind::bytes) out["tokenizer"] = pieces ? "pieces" : "bytes";
    return print_json(out);
  }
  print_written(o.hf, fmt::format("the model of step {}{}, for transformers{}", run.step, run.weights_text(),
                                  lacks ? "; no tokenizer, as the run's data has no SentencePiece model" : ""));
}

void export_run(const ExportOptions& o, Session& session) {
  if (!o.overrides.empty())
    throw user_error("--set is {}, but {} is a run, whose recipe is as it was trained; leave --set out",
                     o.overrides.front(), o.source);
  const LoadedRun run = load_exported(o);
  if (session.comm->rank() != 0) return;
  const std::int64_t left = std::max<std::int64_t>(run.recipe.train.steps - run.step, 0);
  if (o.steps > left)
    throw user_error("--steps is {}, but after step {} the run has {}; {}", o.steps, run.step,
                     left > 0 ? fmt::format("{} more", left) : "no more",
                     left > 0 ? fmt::format("choose at most {}", left) : "leave --steps out");
  check_steps(run.recipe, run.step, o.steps, o.steps);
  const auto dataset = o.steps > 0 ? open_own_data(run, "train", "leave --steps out") : nullptr;
  std::vector<const char*> unwritten = {initial_file};
  if (o.steps == 0) unwritten.push_back(batches_file);
  const NewFolders made =
      make_folder(o, {run.recipe.data.path, (fs::path(o.source) / "recipe.yaml").string()}, unwritten);
  if (dataset) write_batches(file_in(o, batches_file), *dataset, run.recipe, run.step, o.steps);
  write_weights(file_in(o, weights_file), run.model->parameters());
  write_file_atomically(file_in(o, "recipe.yaml"), run.recipe.resolved);
  if (o.json)
    return print_json({{"output", o.output},
                       {"recipe", run.recipe.name},
                       {"steps", o.steps},
                       {"run", o.source},
                       {"step", run.step},
                       {"weights", run.weights_name()}});
  print_written(o.output, fmt::format("the weights of step {}{}{}", run.step, run.weights_text(),
                                      o.steps > 0 ? " and the batches of the next " + counted(o.steps, "step") : ""));
}

void run_export(const ExportOptions& o, Session& session) {
  if (o.output.empty() && o.hf.empty())
    throw user_error("export needs --output, the folder to write to, or --hf; add one of them");
  if (!o.hf.empty()) return export_pretrained(o, session);
  std::error_code unknown;
  fs::is_directory(o.source, unknown) ? export_run(o, session) : export_recipe(o, session);
}

}  // namespace

void add_export(CLI::App& app, Session& session) {
  auto o = std::make_shared<ExportOptions>();
  CLI::App* command =
      app.add_subcommand("export", "Weights and batches of a run or a recipe, for another implementation");
  command->add_option("recipe", o->source, "recipe file, or run directory")->required();
  CLI::Option* set =
      command->add_option("--set", o->overrides, "override a key of a recipe file, as in --set model.layers=2");
  command->add_option("--checkpoint", o->checkpoint, fmt::format("of a run: {}", checkpoint_help));
  command
      ->add_option("--weights", o->weights, "of a run: last, average, or automatic: the average if the run keeps one")
      ->capture_default_str()
      ->check(CLI::IsMember({"automatic", "last", "average"}));
  CLI::Option* steps =
      command
          ->add_option("--steps", o->steps,
                       "steps whose batches are written; default: the first 200 of a recipe, none of a run")
          ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 20));
  CLI::Option* output = command->add_option("--output", o->output, "folder to write to");
  CLI::Option* force = command->add_flag("--force", o->replace,
                                         "write into a folder that holds files, and replace those of the same names");
  command
      ->add_option("--hf", o->hf,
                   "of a run: new folder for programs of Hugging Face: the model, its code and, for text, a tokenizer")
      ->excludes(output)
      ->excludes(force)
      ->excludes(steps)
      ->excludes(set);
  add_json_option(*command, o->json);
  command->callback([o, &session] { run_export(*o, session); });
}

}  // namespace longstride
