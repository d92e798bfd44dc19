// longstride bench sample RECIPE: bytes per second that a model of this size draws. The weights are random.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>

#include "framework/core/errors.h"
#include "framework/core/text/numbers.h"
#include "framework/train/evaluate/evaluation_memory.h"
#include "framework/train/sample/sampler.h"
#include "framework/train/step/precision.h"
#include "launch/bench/bench_device.h"
#include "launch/commands/commands.h"
#include "launch/console/arguments.h"
#include "launch/console/device_option.h"
#include "launch/console/json_output.h"
#include "launch/recipe/recipe.h"

namespace longstride {
namespace {

using Clock = std::chrono::steady_clock;

struct BenchSampleOptions {
  std::string recipe;
  std::vector<std::string> overrides;
  SampleConfig config;
  bool json = false, graph = false;
  DeviceOption device;
};

void run_bench_sample(BenchSampleOptions& o, Session& session) {
  const Device device = chosen_device(o.device, *session.comm);
  if (session.comm->size() > 1) throw user_error("bench sample measures one rank; run it without mpirun");
  const Recipe recipe = read_recipe(o.recipe, o.overrides);
  const auto model = recipe.model->make_model();
  check_device_computes(*model, device);
  o.config.one_kernel = !o.graph;

  ParameterSet& parameters = model->parameters();
  const Tensor sized(nullptr, Dtype::f32, {parameters.flat_size()});
  const Block weights(Device::cpu, sized.bytes());
  const Tensor masters(weights.data(), Dtype::f32, sized.shape());
  parameters.bind(masters, masters);
  parameters.initialise(recipe.train.seed);
  const Precision precision = device == Device::cpu ? Precision::fp32 : without_fp8(recipe.train.precision);
  std::int64_t cache = 0;
  SampleConfig warm = o.config;
  warm.length = 2;
  EvaluationMemory memory(*model, masters, precision, device, [&](const Context& ctx) {
    const SampleMemory taken = sample_memory(*model, ctx, o.config);
    cache = taken.cache;
    return static_cast<std::size_t>(std::max(taken.total, sample_memory(*model, ctx, warm).total));
  });
  Context ctx = memory.context();
  if (device == Device::cuda) sample(*model, ctx, warm);  // loads kernels
  const Clock::time_point begin = Clock::now();
  sample(*model, ctx, o.config);
  const double seconds = std::chrono::duration<double>(Clock::now() - begin).count();
  const auto positions = static_cast<double>(o.config.length), count = static_cast<double>(o.config.count);
  const nlohmann::ordered_json out = {{"recipe", recipe.name},
                                      {"device", device == Device::cuda ? device_info().name : "CPU"},
                                      {"precision", name_of(resolved(precision, device))},
                                      {"sequences", o.config.count},
                                      {"positions", o.config.length},
                                      {"seconds", seconds},
                                      {"microseconds_per_position", 1e6 * seconds / positions},
                                      {"bytes_per_second", positions * count / seconds},
                                      {"cache_bytes", cache}};
  if (o.json) return print_json(out);
  fmt::print("{} on {} in {}: {}, {} positions each\n", recipe.name, out.at("device").get<std::string>(),
             out.at("precision").get<std::string>(), counted(o.config.count, "sequence"), o.config.length);
  fmt::print("speed    {:.0f} bytes/s in all, {:.1f} us per position\n", positions * count / seconds,
             1e6 * seconds / positions);
  fmt::print("cache    {:.3f} GiB\n", gib(cache));
}

}  // namespace

void add_bench_sample(CLI::App& bench, Session& session) {
  auto o = std::make_shared<BenchSampleOptions>();
  o->config.length = 1024;
  CLI::App* sample = bench.add_subcommand("sample", "Generation with random weights: bytes per second");
  sample->add_option("recipe", o->recipe, "recipe file; its data is not needed")->required();
  sample->add_option("--set", o->overrides, "override a key, as in --set model.layers=4");
  sample->add_option("--count", o->config.count, "sequences")->capture_default_str()->check(CLI::Range(1, 1 << 20));
  sample->add_option("--batch", o->config.batch, "sequences at once; default: all, on a GPU at most 16")
      ->check(above_zero());
  sample->add_option("--length", o->config.length, "bytes of each")
      ->capture_default_str()
      ->check(CLI::Range(2, 1 << 24));
  sample->add_flag("--graph", o->graph, "on a GPU: use a graph of the ordinary kernels even if one kernel could do it");
  add_device_option(*sample, o->device);
  add_json_option(*sample, o->json);
  sample->callback([o, &session] { run_bench_sample(*o, session); });
}

}  // namespace longstride
