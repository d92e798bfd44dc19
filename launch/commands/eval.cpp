// longstride eval RUN: the figures of a split of the data, such as bits per byte, with the newest whole checkpoint.
#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>

#include "datasets/dataset.h"
#include "datasets/formats/npy.h"
#include "framework/core/errors.h"
#include "framework/core/text/numbers.h"
#include "framework/core/text/printable.h"
#include "launch/commands/commands.h"
#include "launch/console/arguments.h"
#include "launch/console/device_option.h"
#include "launch/console/json_output.h"
#include "launch/console/output.h"
#include "launch/report/run_history.h"
#include "launch/run/evaluate_run.h"
#include "launch/run/same_on_ranks.h"

namespace longstride {
namespace {

struct EvalOptions {
  std::string run;
  std::string checkpoint = "last", weights = "automatic";
  std::string losses;  // file for every loss; empty: none
  bool json = false, replace = false, leak = false;
  EvaluateRequest request;
  DeviceOption device;
};

// Without a memory, or a limit of distances, there is no key.
void add(nlohmann::ordered_json& out, const EvaluatedMemory& memory) {
  if (memory.length) out["memory"] = *memory.length;
  if (memory.compressed) out["compressed"] = *memory.compressed;
  if (memory.clamp) out["clamp"] = *memory.clamp;
  if (memory.same_length) out["same_length"] = true;
}

void report(const EvalOptions& o, const LoadedRun& run, const EvaluationResult& result) {
  const DataConfig in_effect = data_in_effect(run, o.request);
  const std::int64_t context = in_effect.context, min_context = o.request.min_context;
  const EvaluatedMemory memory = memory_in_effect(run, o.request);
  const Documents documents = in_effect.documents;
  const std::string& data = o.request.data.empty() ? run.recipe.data.path : o.request.data;
  const Figure shown = run.recipe.objective->shown_of(result.scored);
  const bool tokens = run.recipe.data.kind == DataKind::tokens;
  if (o.json) {
    nlohmann::ordered_json out = {{"run", o.run},
                                  {"step", run.step},
                                  {"data", data},
                                  {"split", o.request.split},
                                  {"context", context},
                                  {"min_context", min_context},
                                  {"weights", run.weights_name()},
                                  {tokens ? "tokens" : "bytes", result.bytes}};
    for (const Figure& figure : result.figures) out[figure.key()] = figure.value;
    out["standard_error"] = nullptr;
    if (shown.error) out["standard_error"] = *shown.error;
    if (*run.other_weights() != '\0') out["other_weights"] = run.other_weights();
    add(out, memory);
    if (documents != Documents::joined) out["documents"] = name_of(documents);
    if (result.streams > 0) out["streams"] = result.streams;
    return print_json(out);
  }
  std::string others;
  for (const Figure& figure : result.figures)
    if (figure.name != shown.name)
      others += fmt::format("{}{:.5f} {}", others.empty() ? " (" : ", ", figure.value, figure.shown_unit());
  if (!others.empty()) others += ")";
  fmt::print("{}, {} split, {} {}, step {}{}, context {}{}{}{}: {:.4f}{} {}{}\n", printable(data), o.request.split,
             result.bytes, tokens ? "tokens" : "bytes", run.step, run.weights_text(), context,
             min_context > 0 ? fmt::format(" (at least {})", min_context) : "",
             memory.given() ? ", memory " + text_of(memory) : "",
             documents != Documents::joined ? fmt::format(", documents {}", name_of(documents)) : "", shown.value,
             o.request.spread && shown.error ? fmt::format(" +- {:.4f}", *shown.error) : "", shown.shown_unit(),
             others);
}

void report(const EvalOptions& o, const LoadedRun& run, const ReplacedFutures::Leak& leak) {
  const std::string& data = o.request.data.empty() ? run.recipe.data.path : o.request.data;
  const std::int64_t context = run.recipe.data.context;
  if (o.json)
    return print_json({{"run", o.run},
                       {"step", run.step},
                       {"data", data},
                       {"split", o.request.split},
                       {"context", context},
                       {"windows", leak.windows},
                       {"positions", leak.positions},
                       {"mean_leak", leak.mean},
                       {"largest_leak", leak.largest}});
  const char* const what = run.recipe.data.kind == DataKind::tokens ? "tokens" : "bytes";
  const std::string scores = run.recipe.objective->hides()
                                 ? fmt::format("hidden {} in {} windows", what, leak.windows)
                                 : fmt::format("{} {} in each of {} windows", leak.positions, what, leak.windows);
  fmt::print("{}, {} split, step {}{}, context {}: scores of {} change by {:.3g} bits, at most {:.3g}, with {}\n",
             printable(data), o.request.split, run.step, run.weights_text(), context, scores, leak.mean, leak.largest,
             run.recipe.objective->hides() ? fmt::format("the {} themselves and with other documents and padding", what)
                                           : fmt::format("the {} behind them", what));
}

// A run that cannot be written to, such as another user's, can still be evaluated.
void keep(const EvalOptions& o, const LoadedRun& run, const EvaluationResult& result) {
  const EvaluateRequest& request = o.request;
  KeptEvaluation kept;
  kept.step = run.step;
  kept.split = request.split;
  kept.data = request.data.empty() ? run.recipe.data.path : request.data;
  kept.weights = run.weights_name();
  kept.min_context = request.min_context;
  kept.max_windows = request.max_windows;
  kept.windows = result.windows;
  kept.spread = request.spread;
  kept.memory = memory_in_effect(run, request);
  kept.streams = result.streams;
  kept.context = request.context < run.recipe.data.context ? request.context : 0;
  if (const Documents documents = data_in_effect(run, request).documents; documents != Documents::joined)
    kept.documents = name_of(documents);
  kept.bytes = result.bytes;
  kept.figure = run.recipe.objective->shown_of(result.scored).value;
  try {
    kept.sha256 = Dataset::open(kept.data)->stored_sha256(kept.split);
    keep_evaluation(o.run, kept, *run.recipe.objective);
  } catch (const UserError& error) {
    spdlog::warn("the score is not kept in the run: {}", error.what());
  }
}

void check_losses(const EvalOptions& o, const LoadedRun& run) {
  const std::string& data = o.request.data.empty() ? run.recipe.data.path : o.request.data;
  check_ending(o.losses, ".npy", "losses are written for NumPy", "--losses");
  check_output_file(o.losses, o.replace, {data}, "--losses");
  check_json_output(o.json, o.losses);
}

void write_losses(const EvalOptions& o, const EvaluationResult& result) {
  const std::int64_t columns = std::ssize(result.losses) / result.windows;
  write_npy(o.losses, result.losses, columns);
  if (!o.json)
    print_written(o.losses, fmt::format("losses of {} windows, {} each", thousands(result.windows), columns));
}

void run_eval(EvalOptions& o, const CLI::App& command, Session& session) {
  check_same_on_ranks(given_options(command, {"--data", "--json"}), *session.comm);
  o.request.keep_losses = !o.losses.empty();
  o.request.device = chosen_device(o.device, *session.comm);
  o.request.quiet = o.json;
  const LoadedRun run = load_run_on_ranks(o.run, o.weights, parse_checkpoint_choice(o.checkpoint), *session.comm);
  if (o.leak) {
    const ReplacedFutures::Leak leak = measure_leak(run, o.request, session);
    if (session.comm->rank() == 0) report(o, run, leak);
    return;
  }
  if (o.request.keep_losses && session.comm->rank() == 0) check_losses(o, run);
  const EvaluationResult result = evaluate_run(run, o.request, session);
  if (session.comm->rank() != 0) return;
  report(o, run, result);
  if (o.request.keep_losses) write_losses(o, result);
  keep(o, run, result);
}

}  // namespace

void add_eval(CLI::App& app, Session& session) {
  auto o = std::make_shared<EvalOptions>();
  CLI::App* eval = app.add_subcommand("eval", "Bits per byte of a trained run on held-out data");
  eval->add_option("run", o->run, run_or_folder)->required();
  eval->add_option("--split", o->request.split, "train, valid or test")
      ->capture_default_str()
      ->check(CLI::IsMember({"train", "valid", "test"}));
  eval->add_option("--data", o->request.data, "a prepared dataset other than the recipe's");
  eval->add_option("--context", o->request.context,
                   "bytes or tokens of a window; default: the recipe's data.context, the most")
      ->check(above_zero());
  eval->add_option("--min-context", o->request.min_context,
                   "minimum number of bytes of context for every scored byte; default: 0")
      ->check(not_below_zero());
  eval->add_option("--memory", o->request.memory.length,
                   "positions that the model remembers, instead of model.memory.length; 0: none")
      ->check(not_below_zero());
  eval->add_option("--compressed", o->request.memory.compressed,
                   "rows of the compressed memory, instead of model.memory.compressed")
      ->check(above_zero());
  eval->add_option("--clamp", o->request.memory.clamp, "distances beyond this one count as this one")
      ->check(above_zero());
  eval->add_flag("--same-length", o->request.memory.same_length,
                 "every byte reads as many positions, itself included, as the model remembers, and no more of its own "
                 "window, as in the published evaluation of Transformer-XL");
  eval->add_option("--documents",
                   "joined or separate: whether documents see those before them, instead of data.documents")
      ->type_name("TEXT")
      ->check(CLI::IsMember({"joined", "separate"}))
      ->each([o = o.get()](const std::string& name) {
        o->request.documents = name == "joined" ? Documents::joined : Documents::separate;
      });
  eval->add_option("--checkpoint", o->checkpoint, checkpoint_help);
  eval->add_option("--weights", o->weights, "last, average, or automatic: the average if the run keeps one")
      ->capture_default_str()
      ->check(CLI::IsMember({"automatic", "last", "average"}));
  eval->add_option("--batch", o->request.batch,
                   "windows scored at once, at most all; default: about 8,192 positions, 65,536 on a GPU. A model that "
                   "remembers what it has read reads the split as this many streams; default: 1")
      ->check(above_zero());
  CLI::Option* windows = eval->add_option("--windows", o->request.max_windows,
                                          "score only this many windows, from the first; default: all")
                             ->check(above_zero());
  eval->add_flag("--spread", o->request.spread,
                 "with --windows: spread evenly over the split, with the standard error of the estimate")
      ->needs(windows);
  CLI::Option* losses = eval->add_option("--losses", o->losses,
                                         "NumPy file for every loss, in nats: float32, a row per window; NaN where a "
                                         "window scores nothing");
  eval->add_flag("--force", o->replace, "replace the file named with --losses")->needs(losses);
  eval->add_flag("--leak", o->leak,
                 "how much scores of bytes change with those behind them, or of hidden bytes with themselves and other "
                 "documents, over 16 windows or --windows; 0: nothing that should not be is read")
      ->excludes("--losses", "--spread", "--context", "--min-context");
  add_device_option(*eval, o->device);
  add_json_option(*eval, o->json);
  eval->callback([o, eval, &session] { run_eval(*o, *eval, session); });
}

}  // namespace longstride
