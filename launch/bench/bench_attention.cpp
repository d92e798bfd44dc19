// longstride bench attention RECIPE: the attention of each kind of layer in a recipe, forward and backward, compared
// with the time that its bytes and products would take at the rates of a copy and a matrix product on this device.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <nlohmann/json.hpp>

#include "framework/core/errors.h"
#include "framework/mixers/attention/mixer.h"
#include "framework/ops/run.h"
#include "kernels/attention/attention.h"
#include "launch/bench/bench_device.h"
#include "launch/bench/bench_distance.h"
#include "launch/console/json_output.h"

namespace longstride {
namespace {

struct Shape4 {
  std::int64_t batch, n, heads, key_size, value_size;
};

// Tensors as the model has them: q, k and v are slices of one, and so are their gradients.
struct Tensors {
  Tensor qkv, dqkv, o, d_o, lse;
};

Tensors tensors_of(Scratch& scratch, const Shape4& s, Dtype compute) {
  const std::int64_t packed = s.heads * (2 * s.key_size + s.value_size), values = s.heads * s.value_size;
  Tensors t;
  t.qkv = scratch.tensor({s.batch, s.n, packed}, compute);
  t.dqkv = scratch.like(t.qkv);
  t.o = scratch.tensor({s.batch, s.n, values}, compute);
  t.d_o = scratch.like(t.o);
  t.lse = scratch.tensor({s.batch, s.heads, s.n}, Dtype::f32);
  return t;
}

struct QkvHeads {
  Tensor q, k, v;
};

QkvHeads heads_of(const Tensor& packed, const Shape4& s) {
  const std::int64_t keys = s.heads * s.key_size;
  return {packed.slice(-1, 0, keys).split_last(s.heads, s.key_size),
          packed.slice(-1, keys, 2 * keys).split_last(s.heads, s.key_size),
          packed.slice(-1, 2 * keys, packed.size(-1)).split_last(s.heads, s.value_size)};
}

class AttentionBench {
 public:
  AttentionBench(Context& ctx, const kernels::AttentionPlan& plan, const Shape4& shape, const Tensors& tensors)
      : ctx_(ctx), plan_(plan), shape_(shape), t_(tensors) {}

  void forward() const {
    const QkvHeads in = heads_of(t_.qkv, shape_);
    ops::run(ctx_, kernels::AttentionArgs{.plan = &plan_,
                                          .q = in.q,
                                          .k = in.k,
                                          .v = in.v,
                                          .o = t_.o.split_last(shape_.heads, shape_.value_size),
                                          .lse = t_.lse,
                                          .scale = scale()});
  }
  void backward() const {
    const QkvHeads in = heads_of(t_.qkv, shape_), grad = heads_of(t_.dqkv, shape_);
    const auto split = [&](const Tensor& t) { return t.split_last(shape_.heads, shape_.value_size); };
    ops::run(ctx_, kernels::AttentionBackwardArgs{.plan = &plan_,
                                                  .q = in.q,
                                                  .k = in.k,
                                                  .v = in.v,
                                                  .o = split(t_.o),
                                                  .lse = t_.lse,
                                                  .dout = split(t_.d_o),
                                                  .dq = grad.q,
                                                  .dk = grad.k,
                                                  .dv = grad.v,
                                                  .scale = scale()});
  }

 private:
  double scale() const { return 1.0 / std::sqrt(static_cast<double>(shape_.key_size)); }
  Context& ctx_;
  const kernels::AttentionPlan& plan_;
  Shape4 shape_;
  const Tensors& t_;
};

// The minimum to move and compute: every tensor once, and two (forward) or five (backward) products per pair.
struct BytesAndOperations {
  double bytes, flops;
};

BytesAndOperations forward_work(const Shape4& s, double pairs, Dtype compute) {
  const double rows = static_cast<double>(s.batch * s.n * s.heads), size = static_cast<double>(bytes_of(compute));
  const auto key = static_cast<double>(s.key_size), value = static_cast<double>(s.value_size);
  return {rows * ((2 * key + 2 * value) * size + 4), 2 * (key + value) * pairs};
}

BytesAndOperations backward_work(const Shape4& s, double pairs, Dtype compute) {
  const double rows = static_cast<double>(s.batch * s.n * s.heads), size = static_cast<double>(bytes_of(compute));
  const auto key = static_cast<double>(s.key_size), value = static_cast<double>(s.value_size);
  return {rows * ((4 * key + 4 * value) * size + 4), 2 * (3 * key + 2 * value) * pairs};
}

// The kinds of layer: one for each part of an interleaved pattern, in the order of their first layers.
std::vector<std::int64_t> layers_of(const AttentionLayers& m) {
  std::vector<std::int64_t> layers;
  std::vector<std::vector<kernels::PartKind>> seen;
  for (std::int64_t layer = 0; layer < m.layers; ++layer) {
    std::vector<kernels::PartKind> parts = kernels::parts_of(m.pattern, layer, m.heads, 0);
    if (std::find(seen.begin(), seen.end(), parts) != seen.end()) continue;
    seen.push_back(std::move(parts));
    layers.push_back(layer);
  }
  return layers;
}

std::string name_of_layer(const AttentionLayers& m, std::int64_t layer) {
  if (m.pattern.integration == kernels::Integration::multihead) return "multihead";
  std::string name;
  for (kernels::PartKind part : kernels::parts_of(m.pattern, layer, m.heads, 0))
    name = name.empty() ? kernels::name_of(part) : fmt::format("{}+{}", name, kernels::name_of(part));
  return name;
}

// The lines of one kind of layer with `pairs` of queries and keys.
void report_layer(const std::string& layer, const AttentionBench& bench, const Shape4& shape, double pairs,
                  BenchDevice& device, int repeats, BenchReport& report) {
  const std::string name =
      fmt::format("{} ({}, {}, {}, {}/{})", layer, shape.batch, shape.heads, shape.n, shape.key_size, shape.value_size);
  const BytesAndOperations forward = forward_work(shape, pairs, device.context().compute),
                           backward = backward_work(shape, pairs, device.context().compute);
  report.line(name + " forward", device.median_ms(repeats, [&] { bench.forward(); }), forward.bytes, forward.flops);
  report.line(name + " forward+backward",
              device.median_ms(repeats,
                               [&] {
                                 bench.forward();
                                 bench.backward();
                               }),
              forward.bytes + backward.bytes, forward.flops + backward.flops);
}

void run_bench(const AttentionBenchOptions& options, Session& session) {
  const Device where = chosen_device(options.device, *session.comm);
  if (session.comm->size() > 1) throw user_error("bench attention measures one rank; run it without mpirun");
  const Recipe recipe = read_recipe(options.recipe, options.overrides);
  const auto model = recipe.model->make_model();
  constexpr const char* alone =
      "run attention alone, which needs model.attention; time its whole step with `bench step`";
  const AttentionLayers m = required<AttendsByPattern>(*model, alone).attention();
  check_device_computes(*model, where);
  const std::int64_t context = recipe.data.context;
  const Dtype compute = compute_type(recipe.train.precision, where);
  const std::int64_t micro = divide_batch(recipe.train, 1).micro;
  const Shape4 shape{options.batch > 0 ? options.batch : micro, context, m.heads, m.key_size, m.value_size};
  const DistanceShape with_memory{shape.batch, context,        context + options.memory,
                                  shape.heads, shape.key_size, shape.value_size};
  const AttentionPlans plans(m.pattern, m.heads);

  // Counts what the tensors and the ops' workspace need, then allocates it.
  const auto all = [&](Context& ctx, auto&& work) {
    Scratch scratch(ctx);
    const Tensors tensors = tensors_of(scratch, shape, compute);
    work(tensors);
  };
  BenchDevice device(where, compute, [&](Context& ctx) {
    all(ctx, [&](const Tensors& tensors) {
      BenchDevice::plan_upload(ctx, tensors.qkv);
      for (std::int64_t layer : layers_of(m)) {
        const auto plan = plans.plan(layer, context);
        const AttentionBench bench(ctx, *plan, shape, tensors);
        bench.forward();
        bench.backward();
      }
    });
    if (options.memory > 0) DistanceBench(ctx, with_memory).plan(ctx);
  });
  const Ceilings ceilings = device.ceilings();
  BenchReport report(options, recipe, device, ceilings);
  all(device.context(), [&](const Tensors& tensors) {
    device.fill_normal(tensors.qkv, 1);
    device.fill_normal(tensors.d_o, 2);
    for (std::int64_t layer : layers_of(m)) {
      const auto plan = plans.plan(layer, context);
      const AttentionBench bench(device.context(), *plan, shape, tensors);
      double pairs = 0;
      for (std::int64_t head = 0; head < m.heads; ++head)
        pairs += static_cast<double>(kernels::allowed_pairs(m.pattern, layer, m.heads, head, context));
      pairs *= static_cast<double>(shape.batch);
      report_layer(name_of_layer(m, layer), bench, shape, pairs, device, options.repeats, report);
    }
  });
  if (options.memory > 0) {
    const DistanceBench bench(device.context(), with_memory);
    bench.fill(device);
    bench.report(device, options.repeats, report);
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
  attention
      ->add_option("--memory", o->memory,
                   "also time attention with a distance term (Transformer-XL) over this many more positions")
      ->check(CLI::Range(1, 1 << 22));
  attention->add_option("--repeats", o->repeats, "runs to take the median of")
      ->capture_default_str()
      ->check(CLI::Range(1, 10000));
  add_device_option(*attention, o->device);
  add_json_option(*attention, o->json);
  attention->callback([o, &session] { run_bench(*o, session); });
}

}  // namespace longstride
