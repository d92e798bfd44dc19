// longstride bench attention RECIPE: the attention of each kind of layer in a recipe, forward and backward, compared
// with the time that its bytes and products would take at the rates of a copy and a matrix product on this device.
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>

#include "framework/core/errors.h"
#include "framework/models/mixes_positions.h"
#include "framework/ops/basic.h"
#include "launch/bench/bench_device.h"
#include "launch/console/json_output.h"

namespace longstride {
namespace {

// The layers to time: one for each kind of mixer, in the order of their first ones.
std::vector<std::int64_t> layers_of(const MixesPositions& model) {
  std::vector<std::int64_t> layers;
  std::vector<std::string> seen;
  for (std::int64_t layer = 0; layer < model.layers(); ++layer) {
    const Mixer& mixer = model.mixer(layer);
    std::string what = mixer.summary();
    for (std::int64_t head = 0; head < mixer.heads(); ++head) what += "; " + mixer.kind(head);
    if (std::find(seen.begin(), seen.end(), what) != seen.end()) continue;
    seen.push_back(what);
    layers.push_back(layer);
  }
  return layers;
}

void report_layer(const MixerBench& bench, BenchDevice& device, int repeats, BenchReport& report) {
  const MixerBench::Work &forward = bench.forward_work, &backward = bench.backward_work;
  report.line(bench.name + " forward", device.median_ms(repeats, [&] { bench.forward(device.context()); }),
              forward.bytes, forward.flops);
  report.line(bench.name + " forward+backward",
              device.median_ms(repeats,
                               [&] {
                                 bench.forward(device.context());
                                 bench.backward(device.context());
                               }),
              forward.bytes + backward.bytes, forward.flops + backward.flops);
}

void fill(const MixerBench& bench, BenchDevice& device) {
  std::uint64_t seed = 1;
  for (const Tensor& t : bench.inputs) device.fill_normal(t, seed++);
  for (const Tensor& t : bench.zeros) ops::fill_zero(device.context(), t);
}

void run_bench(const AttentionBenchOptions& options, Session& session) {
  const Device where = chosen_device(options.device, *session.comm);
  if (session.comm->size() > 1) throw user_error("bench attention measures one rank; run it without mpirun");
  const Recipe recipe = read_recipe(options.recipe, options.overrides);
  const auto model = recipe.model->make_model();
  const auto& mixes =
      required<MixesPositions>(*model, "run its attention alone; time its whole step with `bench step`");
  check_device_computes(*model, where);
  const std::int64_t context = recipe.data.context,
                     batch = options.batch > 0 ? options.batch : divide_batch(recipe.train, 1).micro;
  const std::vector<std::int64_t> layers = layers_of(mixes);
  // Counts what the tensors and the ops' workspace need, then allocates it.
  BenchDevice device(where, compute_type(recipe.train.precision, where), [&](Context& ctx) {
    for (const std::int64_t layer : layers) {
      Scratch scratch(ctx);
      for (const MixerBench& bench : mixes.mixer(layer).bench(ctx, scratch, batch, context)) {
        for (const Tensor& t : bench.inputs) BenchDevice::plan_upload(ctx, t);
        bench.forward(ctx);
        bench.backward(ctx);
      }
    }
  });
  const Ceilings ceilings = device.ceilings();
  BenchReport report(options, recipe, device, ceilings);
  for (const std::int64_t layer : layers) {
    Scratch scratch(device.context());
    for (const MixerBench& bench : mixes.mixer(layer).bench(device.context(), scratch, batch, context)) {
      fill(bench, device);
      report_layer(bench, device, options.repeats, report);
    }
  }
  report.finish();
}

}  // namespace

void add_bench_attention(CLI::App& bench, Session& session) {
  auto o = std::make_shared<AttentionBenchOptions>();
  CLI::App* attention = bench.add_subcommand(
      "attention", "The attention of each kind of layer, forward and backward, compared with the bound of this device");
  attention->add_option("recipe", o->recipe, "recipe file; its data is not needed")->required();
  attention->add_option("--set", o->overrides, "override a key, as in --set data.context=65536");
  attention->add_option("--batch", o->batch, "sequences; default: the recipe's micro-batch")
      ->check(CLI::Range(1, 1 << 20));
  attention->add_option("--repeats", o->repeats, "runs to take the median of")
      ->capture_default_str()
      ->check(CLI::Range(1, 10000));
  add_device_option(*attention, o->device);
  add_json_option(*attention, o->json);
  attention->callback([o, &session] { run_bench(*o, session); });
}

}  // namespace longstride
