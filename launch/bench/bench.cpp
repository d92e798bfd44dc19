// longstride bench step RECIPE: how long one optimizer step takes, on random tokens. The same code trains.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>

#include "framework/core/errors.h"
#include "framework/core/text/numbers.h"
#include "framework/train/step/precision.h"
#include "framework/train/step/training_step.h"
#include "launch/bench/bench_device.h"
#include "launch/bench/step_breakdown.h"
#include "launch/bench/step_times.h"
#include "launch/commands/commands.h"
#include "launch/console/arguments.h"
#include "launch/console/device_option.h"
#include "launch/console/json_output.h"
#include "launch/recipe/recipe.h"
#include "launch/recipe/settings_tree.h"
#include "launch/run/random_rows.h"
#include "launch/run/recompute.h"
#include "launch/run/same_on_ranks.h"

namespace longstride {
namespace {

struct BenchOptions {
  std::string recipe;
  std::vector<std::string> overrides;
  int steps = 20;
  double seconds = 20;
  bool json = false;
  DeviceOption device;
};

struct Bench {
  const Recipe& recipe;
  const Model& model;
  Communicator& comm;
  TrainingStep step;
  std::vector<std::uint8_t> rows;
  StepTimes times;
};

nlohmann::ordered_json results(Bench& b, const std::string& name, std::size_t taken) {
  const Recipe& r = b.recipe;
  const Device device = b.step.plan().device;
  const double milliseconds = median(b.times.milliseconds);
  const double tokens = static_cast<double>(r.train.global_batch * r.data.context);
  const double flops =
      static_cast<double>(r.train.global_batch) * b.model.cost(r.data.context).training_flops / (milliseconds * 1e-3);
  const int ranks = b.comm.size();
  const auto peak = device == Device::cuda ? peak_flops(name, r.train.precision) : std::nullopt;
  const Setting settings = parse_settings(r.resolved, r.name);
  const Setting* recompute = find_setting(settings, "model.recompute");
  nlohmann::ordered_json out = {
      {"recipe", r.name},
      {"device", name},
      {"precision", name_of(resolved(r.train.precision, device))},
      {"steps", b.times.milliseconds.size()},
      {"global_batch", r.train.global_batch},
      {"micro_batch", b.step.batching().micro},
      {"context", r.data.context},
      {"recompute", recompute == nullptr ? "none" : recompute->scalar},
      {"milliseconds", milliseconds},
      {"fastest", *std::min_element(b.times.milliseconds.begin(), b.times.milliseconds.end())},
      {"slowest", *std::max_element(b.times.milliseconds.begin(), b.times.milliseconds.end())},
      {"ranks", ranks},
      {"tokens_per_second", tokens / (milliseconds * 1e-3)},
      {"tflops", flops / 1e12},
      {"mfu", peak ? nlohmann::json(flops / *peak / ranks) : nlohmann::json("unknown")},
      {"planned_bytes", b.step.plan().block()},
      {"used_bytes", b.step.state().used_bytes()},
      {"loss", b.times.loss}};
  if (device == Device::cuda) {
    out["taken_bytes"] = taken;
    out["busy"] = b.times.busy / b.times.wall;
  }
  if (!b.times.exchange.empty()) out["exchange_milliseconds"] = median(b.times.exchange);
  return out;
}

void print_text(const nlohmann::ordered_json& r) {
  const auto gib_of = [&](const char* key) { return gib(r.at(key).get<std::int64_t>()); };
  fmt::print("{} on {} in {}, {} x {} bytes per step, {} at a time, recompute {}\n", r.at("recipe").get<std::string>(),
             r.at("device").get<std::string>(), r.at("precision").get<std::string>(),
             r.at("global_batch").get<std::int64_t>(), r.at("context").get<std::int64_t>(),
             r.at("micro_batch").get<std::int64_t>(), r.at("recompute").get<std::string>());
  fmt::print("step     {:.3f} ms, median of {} ({:.3f} to {:.3f})\n", r.at("milliseconds").get<double>(),
             r.at("steps").get<int>(), r.at("fastest").get<double>(), r.at("slowest").get<double>());
  const int ranks = r.at("ranks").get<int>();
  if (ranks > 1) fmt::print("ranks    {}; the figures below are totals\n", ranks);
  fmt::print("speed    {:.0f} tokens/s, {:.1f} TFLOP/s, MFU {}\n", r.at("tokens_per_second").get<double>(),
             r.at("tflops").get<double>(),
             r.at("mfu").is_number() ? fmt::format("{:.1f}%", 100 * r.at("mfu").get<double>()) : "unknown");
  fmt::print("memory   {:.3f} GiB planned, {:.3f} GiB used ({} and {} bytes)\n", gib_of("planned_bytes"),
             gib_of("used_bytes"), r.at("planned_bytes").get<std::int64_t>(), r.at("used_bytes").get<std::int64_t>());
  if (r.contains("exchange_milliseconds"))
    fmt::print("exchange {:.3f} ms for a step's gradients between the ranks, with nothing else running\n",
               r.at("exchange_milliseconds").get<double>());
  if (!r.contains("busy")) return;
  fmt::print("         {:.3f} GiB less free than before, including kernels and libraries\n", gib_of("taken_bytes"));
  fmt::print("busy     {:.2f}% of the time between the first step and the last\n", 100 * r.at("busy").get<double>());
  if (r.contains("breakdown")) print_breakdown(r.at("breakdown"));
}

void run_bench(const BenchOptions& o, Session& session) {
  const Device device = chosen_device(o.device, *session.comm);
  Recipe recipe = read_recipe(o.recipe, o.overrides);
  check_same_on_ranks(facts_of(recipe), *session.comm);
  check_precision(recipe.train.precision, device);
  recipe.train.stages.clear();  // the last stage, at the whole context, takes the longest
  choose_automatic_recompute(recipe, device, *session.comm);
  const auto model = recipe.model->make_model();
  check_device_computes(*model, device);
  check_training_fits(*model, recipe.train, device, *session.comm);
  // Measured before the step is set up, because it may leave no memory for this.
  const Ceilings ceilings =
      device == Device::cuda
          ? BenchDevice(device, compute_type(recipe.train.precision, device), [](Context&) {}).ceilings()
          : Ceilings{};
  const std::size_t free_before = device == Device::cuda ? device_info().free_bytes : 0;
  Bench b{recipe, *model, *session.comm, {*model, recipe.train, *session.comm, device}, {}, {}};
  b.rows = random_rows(b.step.state().layout(), *recipe.objective, recipe.data.vocabulary);
  b.step.start();
  b.times = time_steps(b.step, b.rows, model->warm_up_steps(), *session.comm, {o.steps, 3, o.seconds});
  const DeviceInfo gpu = device == Device::cuda ? device_info() : DeviceInfo{"CPU", 0, 0, 0, 0};
  if (session.comm->rank() != 0) return;
  nlohmann::ordered_json out = results(b, gpu.name, free_before - gpu.free_bytes);
  if (device == Device::cuda && session.comm->size() == 1)
    out["breakdown"] = step_breakdown(b.step, b.rows.data(), *model, ceilings, out.at("milliseconds").get<double>());
  if (session.comm->rank() != 0) return;
  if (o.json)
    print_json(out);
  else
    print_text(out);
}

}  // namespace

void add_bench(CLI::App& app, Session& session) {
  auto o = std::make_shared<BenchOptions>();
  CLI::App* bench = app.add_subcommand("bench", "Measure how fast a recipe runs here");
  bench->require_subcommand(1);
  CLI::App* step = bench->add_subcommand(
      "step", "One optimizer step on random tokens, at the whole context: time, operations, memory");
  step->add_option("recipe", o->recipe, "recipe file; its data is not needed")->required();
  step->add_option("--set", o->overrides, "override a key, as in --set train.micro_batch=4");
  step->add_option("--steps", o->steps, "steps to time, after a few to warm up")
      ->capture_default_str()
      ->check(CLI::Range(1, 10000));
  step->add_option("--seconds", o->seconds,
                   "time fewer steps, at least three, if --steps would take longer; default: 20")
      ->check(above_zero());
  add_device_option(*step, o->device);
  add_json_option(*step, o->json);
  step->callback([o, &session] { run_bench(*o, session); });
  add_bench_attention(*bench, session);
  add_bench_sample(*bench, session);
}

}  // namespace longstride
