// longstride recipe DATA: writes a recipe for prepared data, fitted to this machine and to the time that there is.
#include <fmt/format.h>

#include <filesystem>
#include <memory>

#include "framework/core/errors.h"
#include "framework/core/files/files.h"
#include "framework/core/text/numbers.h"
#include "framework/core/text/printable.h"
#include "framework/train/metrics/progress.h"
#include "launch/commands/commands.h"
#include "launch/console/arguments.h"
#include "launch/console/device_option.h"
#include "launch/console/json_output.h"
#include "launch/console/output.h"
#include "launch/propose/proposal.h"

namespace longstride {
namespace {

struct RecipeOptions {
  ProposalRequest request;
  std::string output;
  bool replace = false, json = false;
  DeviceOption device;
};

void print_text(const RecipeOptions& o, const Proposal& p) {
  const double rate = 1e3 * static_cast<double>(p.global_batch * p.context) / p.milliseconds;
  print_written(o.output, fmt::format("{} of {} x {} {}s at {} tokens/s: {:.3g} passes over train; begins with {}",
                                      counted(p.steps, "step"), p.global_batch, thousands(p.context), p.unit, rate_text(rate),
                                      p.passes, printable(p.like)));
  if (progress_is_shown()) fmt::print("next: longstride train {}\n", printable(o.output));
}

void run_recipe(RecipeOptions& o, Session& session) {
  if (session.comm->size() > 1)
    throw user_error("recipe measures one rank; run it without mpirun, and train what it writes with any number");
  if (o.output.empty()) o.output = std::filesystem::path(o.request.data).replace_extension(".yaml").string();
  check_ending(o.output, ".yaml", "a recipe is YAML");
  check_output_file(o.output, o.replace, {o.request.data, o.request.like});
  check_json_output(o.json, o.output);
  o.request.device = chosen_device(o.device, *session.comm);
  const Proposal p = propose(o.request, *session.comm);
  write_file_atomically(o.output, p.text);
  if (!o.json) return print_text(o, p);
  print_json({{"output", o.output},
              {"name", p.name},
              {"like", p.like},
              {"context", p.context},
              {"global_batch", p.global_batch},
              {"micro_batch", p.micro_batch},
              {"steps", p.steps},
              {"lr", p.lr},
              {"milliseconds", p.milliseconds},
              {"passes", p.passes}});
}

}  // namespace

void add_recipe(CLI::App& app, Session& session) {
  auto o = std::make_shared<RecipeOptions>();
  CLI::App* recipe = app.add_subcommand("recipe", "Write a recipe for prepared data, fitted to this machine");
  recipe->add_option("data", o->request.data, "dataset file that prepare wrote")->required();
  recipe->add_option("--like", o->request.like,
                     "recipe to begin with, such as survey/text-8min-gla; default: one for this kind of data");
  recipe->add_option("--minutes", o->request.minutes, "how long the training may take")
      ->capture_default_str()
      ->check(CLI::Range(0.01, 100000.0));
  recipe->add_option("--output", o->output, "recipe to write; default: DATA, ending in .yaml");
  recipe->add_flag("--force", o->replace, "replace the output if it exists");
  add_device_option(*recipe, o->device);
  add_json_option(*recipe, o->json);
  recipe->callback([o, &session] { run_recipe(*o, session); });
}

}  // namespace longstride
