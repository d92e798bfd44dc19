// [mpirun -n N] longstride train RECIPE: from a recipe and a prepared dataset to a run directory; with --from, a new
// run that begins with the weights of another.
#include <spdlog/spdlog.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <optional>

#include "framework/core/errors.h"
#include "framework/core/text/numbers.h"
#include "framework/core/text/printable.h"
#include "framework/train/metrics/progress.h"
#include "framework/train/run/stop.h"
#include "launch/commands/commands.h"
#include "launch/console/device_option.h"
#include "launch/console/json_output.h"
#include "launch/report/run_facts.h"
#include "launch/run/train_run.h"
#include "launch/sweep/sweep.h"
#include "launch/sweep/sweep_plan.h"

namespace longstride {
namespace {

struct TrainOptions {
  std::string recipe, run;
  std::vector<std::string> overrides, sweeps;
  std::int64_t seeds = 1;
  bool resume = false, resume_changed = false, json = false;
  std::optional<std::string> from;
  std::string checkpoint = "last", weights = "automatic";
  std::vector<std::string> fresh, repeated;
  DeviceOption device;
};

std::optional<BeginFrom> beginning(const TrainOptions& o) {
  if (!o.from) return std::nullopt;
  if (o.resume || o.resume_changed)
    throw user_error(
        "--from and {} are given, but a run that resumes has weights of its own; leave out --from to "
        "continue the run, or {} to start a new one",
        o.resume ? "--resume" : "--resume-changed", o.resume ? "--resume" : "--resume-changed");
  return BeginFrom{*o.from, parse_checkpoint_choice(o.checkpoint), o.weights, o.fresh, o.repeated};
}

// The end of a run: its best, what it took, and what to do with it.
void show_end(const TrainRequest& request, const RunOutcome& outcome) {
  const RunFacts facts = read_run(request.run, false);
  const Figure form = facts.recipe.objective->shown_form();
  const std::vector<EvaluationPoint>& all = facts.history.evaluations;
  const auto better = [&](const EvaluationPoint& a, const EvaluationPoint& b) {
    return form.lower_is_better ? a.figure < b.figure : a.figure > b.figure;
  };
  const auto best = std::min_element(all.begin(), all.end(), better);
  std::string text = "done in " + duration_text(outcome.seconds);
  if (best != all.end())
    text +=
        fmt::format("; best of valid: {:.4f} {} at step {}", best->figure, form.shown_unit(), thousands(best->step));
  if (!facts.passes().empty()) text += fmt::format("; {} passes over train", facts.passes());
  if (outcome.joules) text += fmt::format("; {:.4g} kJ on the GPU", *outcome.joules / 1e3);
  spdlog::info("{}", text);
  const std::string run = printable(request.run);
  const bool keeps = facts.recipe.train.keep_best && best != all.end() && best->step != facts.state.step;
  const char* checkpoint = keeps ? " --checkpoint best" : "";
  spdlog::info("next:");
  if (capability<Decodes>(*facts.model) != nullptr) spdlog::info("  longstride sample {}{}", run, checkpoint);
  spdlog::info("  longstride eval {}{}", run, checkpoint);
  spdlog::info("  longstride report {}", run);
}

void sweep(const TrainOptions& o, Session& session) {
  if (o.resume || o.resume_changed)
    throw user_error("--{} is given, but a sweep continues by itself what is not finished; leave it out",
                     o.resume ? "resume" : "resume-changed");
  SweepRequest request{o.recipe, o.overrides, o.sweeps, o.seeds, o.run, {}, o.device, o.json};
  if (o.from) request.beginning = {"--from", *o.from, "--checkpoint", o.checkpoint, "--weights", o.weights};
  for (const auto& [option, values] : {std::pair("--new", &o.fresh), std::pair("--repeat", &o.repeated)})
    for (const std::string& value : *values) request.beginning.insert(request.beginning.end(), {option, value});
  run_sweep(request, session);
}

void run_train(const TrainOptions& o, Session& session) {
  if (!o.sweeps.empty() || o.seeds > 1) return sweep(o, session);
  TrainRequest request;
  request.recipe = read_recipe(o.recipe, o.overrides);
  request.device = chosen_device(o.device, *session.comm);
  request.run = o.run.empty() ? (std::filesystem::path("runs") / request.recipe.name).string() : o.run;
  request.resume = o.resume || o.resume_changed;
  request.accept_changes = o.resume_changed;
  request.from = beginning(o);
  catch_stop_signals(session.comm->rank() == 0 ? training_stops : StopNotices{});
  const RunOutcome outcome = train_run(request, session);
  if (session.comm->rank() != 0) return;
  const bool all = outcome.step == request.recipe.train.steps;
  if (outcome.stopped) spdlog::info("stopped at step {}{}", outcome.step, all ? "" : "; continue with --resume");
  if (request.resume && !outcome.stopped && !outcome.loss)
    spdlog::info("{}: has done all of its {}; to train it further, add --resume-changed --set train.steps={}",
                 request.run, counted(outcome.step, "step"), 2 * outcome.step);
  if (all && outcome.loss) show_end(request, outcome);
  if (!o.json) return;
  nlohmann::ordered_json out = {{"run", request.run},         {"recipe", request.recipe.name},
                                {"step", outcome.step},       {"steps", request.recipe.train.steps},
                                {"stopped", outcome.stopped}, {"seconds", outcome.seconds}};
  if (outcome.joules) out["joules"] = *outcome.joules;
  for (const Figure& figure : request.recipe.objective->figures_of_loss(outcome.loss.value_or(0))) {
    out[figure.key()] = nullptr;
    if (outcome.loss) out[figure.key()] = figure.value;
  }
  print_json(out);
}

}  // namespace

void add_train(CLI::App& app, Session& session) {
  auto o = std::make_shared<TrainOptions>();
  CLI::App* train = app.add_subcommand("train", "Train a recipe; under mpirun, data-parallel over the ranks");
  train->add_option("recipe", o->recipe, "recipe file")->required();
  train->add_option("--set", o->overrides, "override a key, as in --set model.layers=12");
  train->add_option("--sweep", o->sweeps,
                    "train a run for every value of a key, as in train.lr=1e-3,4e-3, or every combination; the same "
                    "command continues");
  train->add_option("--seeds", o->seeds, "seeds for every run of a sweep, from train.seed on")
      ->capture_default_str()
      ->check(CLI::Range(std::int64_t{1}, most_runs_of_sweep));
  train->add_option("--run", o->run,
                    "run directory, or the folder of a sweep's runs; default: runs/NAME, after the recipe's name, or "
                    "runs/NAME-sweep");
  train->add_flag("--resume", o->resume, "continue from the newest whole checkpoint");
  train->add_flag("--resume-changed", o->resume_changed,
                  "continue even if training settings or data differ from the last checkpoint; prints old and new");
  CLI::Option* from = train->add_option(
      "--from", o->from,
      "start with the weights of another run, a safetensors file or a folder of save_pretrained, which is only read");
  train->add_option("--checkpoint", o->checkpoint, std::string("with --from: ") + checkpoint_help)->needs(from);
  train
      ->add_option("--weights", o->weights,
                   "with --from: last, average, or automatic: the average if that run keeps one")
      ->capture_default_str()
      ->check(CLI::IsMember({"automatic", "last", "average"}))
      ->needs(from);
  train
      ->add_option(
          "--new", o->fresh,
          "with --from: a part of the model that starts anew, such as a new head; parts that the recipe's model "
          "lacks are left out")
      ->needs(from);
  train
      ->add_option("--repeat", o->repeated,
                   "with --from: a table whose rows are repeated, such as embedding.position.0 for a longer context")
      ->needs(from);
  add_device_option(*train, o->device);
  add_json_option(*train, o->json);
  train->callback([o, &session] { run_train(*o, session); });
}

}  // namespace longstride
