// longstride eval RUN: bits per byte of a split of the data, with the newest whole checkpoint.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>

#include "datasets/dataset.h"
#include "framework/core/errors.h"
#include "framework/train/evaluation_memory.h"
#include "launch/arguments.h"
#include "launch/commands.h"
#include "launch/counter_line.h"
#include "launch/device_option.h"
#include "launch/run_directory.h"

namespace longstride {
namespace {

struct EvalOptions {
  std::string run, split = "test", data;
  std::string weights = "automatic";
  std::int64_t min_context = 0, batch = 0, max_windows = 0;
  bool json = false;
  DeviceOption device;
};

void report(const EvalOptions& o, const LoadedRun& run, const EvaluationConfig& config,
            const EvaluationResult& result) {
  if (o.json) {
    const nlohmann::ordered_json out = {{"run", o.run},
                                        {"step", run.step},
                                        {"split", o.split},
                                        {"context", config.context},
                                        {"min_context", config.min_context},
                                        {"weights", run.averaged ? "average" : "last"},
                                        {"bytes", result.bytes},
                                        {"loss", result.loss()},
                                        {"bits_per_byte", result.bits_per_byte()}};
    std::puts(out.dump(2).c_str());
    return;
  }
  fmt::print("{} split, {} bytes, step {}{}, context {}{}: {:.4f} bits per byte ({:.5f} nats)\n", o.split, result.bytes,
             run.step, run.averaged ? ", averaged weights" : "", config.context,
             config.min_context > 0 ? fmt::format(" (at least {})", config.min_context) : "", result.bits_per_byte(),
             result.loss());
}

void run_eval(const EvalOptions& o, Session& session) {
  const Device device = chosen_device(o.device, session.comm->size());
  const LoadedRun run = load_run(o.run, o.weights);
  check_device_computes(run.recipe.model, device);
  const std::string path = o.data.empty() ? run.recipe.data.path : o.data;
  const auto dataset = Dataset::open(path);
  const auto sequences = dataset->split(o.split, run.recipe.data.cross_files);
  EvaluationConfig config;
  config.context = run.recipe.model.context;
  config.min_context = o.min_context;
  config.max_windows = o.max_windows;
  // Enough for every core, or to fill a GPU.
  const std::int64_t positions = device == Device::cpu ? 8192 : 65536, most = device == Device::cpu ? 16 : 256;
  config.batch = o.batch > 0 ? o.batch : std::clamp<std::int64_t>(positions / config.context, 1, most);
  if (config.min_context >= config.context)
    throw user_error("--min-context is {}, but must be below the context of {}", config.min_context, config.context);
  const auto windows = static_cast<std::int64_t>(evaluation_windows(*sequences, config).size());
  if (windows == 0) throw user_error("{}: the split '{}' is empty; choose another with --split", path, o.split);

  EvaluationMemory memory(*run.model, run.masters, config, run.recipe.train.precision, device);
  Context ctx = memory.context();
  const bool quiet = session.comm->rank() != 0 || o.json;
  CounterLine line("eval", quiet);
  const EvaluationResult result = evaluate(*run.model, ctx, *sequences, config, *session.comm,
                                           [&](std::int64_t done, std::int64_t all) { line.update(done, all); });
  if (session.comm->rank() == 0) report(o, run, config, result);
}

}  // namespace

void add_eval(CLI::App& app, Session& session) {
  auto o = std::make_shared<EvalOptions>();
  CLI::App* eval = app.add_subcommand("eval", "Bits per byte of a trained run on held-out data");
  eval->add_option("run", o->run, "run directory")->required();
  eval->add_option("--split", o->split, "train, valid or test")->check(CLI::IsMember({"train", "valid", "test"}));
  eval->add_option("--data", o->data, "another prepared dataset than the recipe's");
  eval->add_option("--min-context", o->min_context, "bytes of context that every scored byte has at least")
      ->check(not_below_zero());
  eval->add_option("--weights", o->weights, "last, average, or automatic: the average where the run keeps one")
      ->check(CLI::IsMember({"automatic", "last", "average"}));
  eval->add_option("--batch", o->batch, "windows scored at once; default: about 8,192 positions, 65,536 on a GPU")
      ->check(above_zero());
  eval->add_option("--windows", o->max_windows, "score only the first so many windows")->check(above_zero());
  add_device_option(*eval, o->device);
  eval->add_flag("--json", o->json, "print JSON");
  eval->callback([o, &session] { run_eval(*o, session); });
}

}  // namespace longstride
