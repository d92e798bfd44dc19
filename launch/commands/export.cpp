// longstride export RECIPE: the initial weights and the first batches of a run, from which another implementation can
// start: DIR/initial.safetensors, DIR/batches.safetensors (tokens, u8, (steps, global batch, context)),
// DIR/recipe.yaml.
#include <fmt/format.h>

#include <filesystem>
#include <memory>

#include "datasets/dataset.h"
#include "framework/core/device/memory.h"
#include "framework/core/errors.h"
#include "framework/core/files/files.h"
#include "framework/core/files/safetensors.h"
#include "framework/train/stages.h"
#include "launch/commands/commands.h"
#include "launch/console/arguments.h"
#include "launch/console/json_output.h"
#include "launch/console/output.h"
#include "launch/recipe/recipe.h"
#include "launch/run/run_data.h"

namespace longstride {
namespace {

namespace fs = std::filesystem;

struct ExportOptions {
  std::string recipe, output;
  std::vector<std::string> overrides;
  std::int64_t steps = 200;
  bool replace = false, json = false;
};

void write_weights(const std::string& path, const Recipe& recipe) {
  const auto model = recipe.model->make_model();
  ParameterSet& parameters = model->parameters();
  const Shape flat = {parameters.flat_size()};
  const Block memory(Device::cpu, Tensor(nullptr, Dtype::f32, flat).bytes());
  const Tensor masters(memory.data(), Dtype::f32, flat);
  parameters.bind(masters, masters);  // nothing here writes gradients
  parameters.initialise(recipe.train.seed);
  std::vector<TensorEntry> entries;
  for (const Parameter& p : parameters.all()) entries.push_back({p.name, Dtype::f32, p.shape});
  SafetensorsWriter writer(path, std::move(entries), {{"format", "pt"}});
  for (const Parameter& p : parameters.all()) writer.write(p.master);
  writer.finish();
}

void write_batches(const std::string& path, const Recipe& recipe, std::int64_t steps) {
  const auto data = open_rows(*Dataset::open(recipe.data.path), recipe);
  const StepShape first = shape_at(recipe.train, 0, recipe.data.context),
                  last = shape_at(recipe.train, steps - 1, recipe.data.context);
  if (first.rows != last.rows || first.context != last.context)
    throw user_error("--steps is {}, but later stages of these read other numbers of bytes; choose at most {}", steps,
                     recipe.train.stages.front().until);
  const Shape shape = {steps, first.rows, first.context};
  const Block memory(Device::cpu, Tensor(nullptr, Dtype::u8, shape).bytes());
  const Tensor tokens(memory.data(), Dtype::u8, shape);
  const Shape rows = {first.rows, first.context};
  for (std::int64_t step = 0; step < steps; ++step)
    data->read(step, first.rows, 0, {tokens.slice(0, step, step + 1).rows().reshape(rows)});
  SafetensorsWriter writer(path, {{"tokens", Dtype::u8, shape}}, {{"format", "pt"}});
  writer.write(tokens);
  writer.finish();
}

void run_export(const ExportOptions& o, Session& session) {
  const Recipe recipe = read_recipe(o.recipe, o.overrides);
  if (session.comm->rank() != 0) return;
  make_output_folder(o.output, o.replace, {o.recipe, recipe.data.path});
  const std::int64_t steps = std::min(o.steps, recipe.train.steps);
  const auto file = [&](const char* name) { return (fs::path(o.output) / name).string(); };
  write_batches(file("batches.safetensors"), recipe, steps);
  write_weights(file("initial.safetensors"), recipe);
  write_file_atomically(file("recipe.yaml"), recipe.resolved);
  if (o.json) return print_json({{"output", o.output}, {"recipe", recipe.name}, {"steps", steps}});
  print_written(o.output, fmt::format("the initial weights and the batches of {} steps of {}", steps, recipe.name));
}

}  // namespace

void add_export(CLI::App& app, Session& session) {
  auto o = std::make_shared<ExportOptions>();
  CLI::App* command = app.add_subcommand("export", "Initial weights and first batches, for another implementation");
  command->add_option("recipe", o->recipe, "recipe file")->required();
  command->add_option("--set", o->overrides, "override a key, as in --set model.layers=2");
  command->add_option("--steps", o->steps, "steps whose batches are written")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 20));
  command->add_option("--output", o->output, "folder to write to")->required();
  command->add_flag("--force", o->replace, "write into a folder that holds files, and replace those of the same names");
  add_json_option(*command, o->json);
  command->callback([o, &session] { run_export(*o, session); });
}

}  // namespace longstride
