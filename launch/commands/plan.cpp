// longstride plan RECIPE: what a recipe will cost, before anything is allocated.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "datasets/dataset.h"
#include "framework/core/errors.h"
#include "framework/core/text/numbers.h"
#include "framework/core/text/printable.h"
#include "framework/train/metrics/progress.h"
#include "framework/train/stages.h"
#include "framework/train/step/memory_plan.h"
#include "framework/train/step/precision.h"
#include "framework/train/step/step_work.h"
#include "launch/commands/commands.h"
#include "launch/commands/cpu_rate.h"
#include "launch/commands/memory_facts.h"
#include "launch/console/arguments.h"
#include "launch/console/device_option.h"
#include "launch/console/host_share.h"
#include "launch/console/json_output.h"
#include "launch/console/picture_stride.h"
#include "launch/recipe/recipe.h"
#include "launch/run/recompute.h"
#include "launch/run/run_data.h"

namespace longstride {
namespace {

struct PlanOptions {
  std::string recipe;
  std::vector<std::string> overrides;
  int ranks = 1;
  double mfu = 0, peak_tflops = 0, memory = 0;  // 0: not given
  bool json = false;
  DeviceOption device;
};

// The rate that gives the time: a GPU's datasheet, the user's options, or a measurement of this processor.
struct Rate {
  double mfu = 0.35;
  double peak_tflops = 989;  // one device's: dense bf16 on an H100 or H200, from NVIDIA's datasheet
  bool measured = false;
  double flops_per_second() const { return mfu * peak_tflops * 1e12; }
};

Rate rate_of(const PlanOptions& options, Device device) {
  Rate rate;
  rate.measured = device == Device::cpu && options.peak_tflops == 0;
  if (rate.measured) {
    rate.mfu = usual_cpu_utilisation;
    rate.peak_tflops = measure_cpu_rate() / 1e12;
  }
  if (options.mfu > 0) rate.mfu = options.mfu;
  if (options.peak_tflops > 0) rate.peak_tflops = options.peak_tflops;
  return rate;
}

// The steps of a stage, and the cost of one of them over all ranks.
struct StageCost {
  StageSteps steps;
  double flops_per_step = 0;
};

struct Costs {
  std::int64_t parameters = 0;
  double flops_per_step = 0;      // work of all ranks, at the whole context
  std::vector<StageCost> stages;  // the one with the whole context last; empty if there are none
  double attention_density =
      0;  // allowed pairs over those of the direction, mean of all layers and heads; 0: no attention
  bool looks_ahead = false;
  std::vector<std::string> states;        // that layers keep in place of keys
  std::optional<MemoryFacts> looks_back;  // attention that may read what earlier windows have left
  std::string slow_attention;             // on a GPU: which shape makes attention slow; empty: none
  std::string fp8;                        // with fp8: the parts that do not gain from it; empty: none
  std::int64_t tokens = 0;                // bytes that the whole run reads
  Rate rate;
  double seconds = 0;
  std::optional<RecomputeChoice> recompute;  // absent: the model has no names for its policies
  MemoryPlan memory;
  MemoryLimit room;  // memory for the plan here; not known for GPUs where there are none
  Batching batching;
  std::optional<Passes> passes;  // if the dataset is here
  std::string no_data;           // why there is none
  std::string other_stride;      // pictures: advice on a stride; empty: none

  bool fits() const { return !room.bytes || memory.on_device() <= *room.bytes; }
};

// The dataset need not be there yet, or be on this machine.
void look_at_data(const Recipe& recipe, Costs& c) {
  std::error_code absent;
  if (!std::filesystem::exists(recipe.data.path, absent)) {
    c.no_data = fmt::format("{} is not here, so how often it is read is not known", printable(recipe.data.path));
    return;
  }
  try {
    const auto dataset = Dataset::open(recipe.data.path);
    check_fits(*dataset, recipe.data);
    c.passes = passes_of(recipe, dataset->size("train").bytes);
  } catch (const UserError& error) {
    c.no_data = error.what();
  }
}

MemoryLimit memory_option(const PlanOptions& options) {
  constexpr double bytes_per_gib = 1 << 30, most = 9e18;
  return {static_cast<std::int64_t>(std::min(most, options.memory * bytes_per_gib)), "--memory"};
}

// The memory beyond which a plan is refused.
MemoryLimit room_of(const PlanOptions& options, Device device) {
  if (options.memory > 0) return memory_option(options);
  if (device == Device::cuda && device_count() == 0) return {};
  if (const auto gpu = gpu_info(device)) return {static_cast<std::int64_t>(gpu->free_bytes), "free on this GPU"};
  return host_share(1);
}

// The memory of a rank, for a recipe that leaves its recompute to the planner. Every rank is planned like one alone on
// this machine, or like one with an H200 if GPUs are planned where there are none.
MemoryLimit limit_of(const PlanOptions& options, Device device) {
  constexpr std::int64_t h200 = std::int64_t{138} << 30;
  if (options.memory > 0) return memory_option(options);
  if (device == Device::cuda && device_count() == 0)
    return {h200, "an H200's, because there is no GPU here and --memory is not given"};
  return free_memory(device, options.ranks, 1);
}

// Replaces model.recompute: automatic by the planner's choice.
std::optional<RecomputeChoice> chosen_recompute(Recipe& recipe, const PlanOptions& options, Device device) {
  if (recompute_is_automatic(recipe)) return choose_recompute(recipe, options.ranks, device, limit_of(options, device));
  if (options.memory > 0)
    throw user_error(
        "--memory is {} GiB, but the recipe leaves no choice that depends on it; set model.recompute: automatic, or "
        "leave the option out",
        options.memory);
  return choose_recompute(recipe, options.ranks, device, {});
}

std::vector<StageCost> stage_costs(const Recipe& recipe, Model& model) {
  std::vector<StageCost> out;
  for (const StageSteps& steps : stretches(recipe.train, model.context())) {
    enter_stage(model, steps.stage);
    const auto sequences = static_cast<double>(steps.shape.rows * steps.shape.sequences);
    out.push_back({steps, model.cost(steps.shape.sequence()).training_flops * sequences});
  }
  return out;
}

// Each kind once.
std::vector<std::string> states_of(const Model& model) {
  std::vector<std::string> out;
  const auto* mixes = capability<MixesPositions>(model);
  for (std::int64_t layer = 0; mixes != nullptr && layer < mixes->layers(); ++layer)
    if (const std::string state = mixes->mixer(layer).state();
        !state.empty() && std::find(out.begin(), out.end(), state) == out.end())
      out.push_back(state);
  return out;
}

Costs costs_of(const Recipe& recipe, const PlanOptions& options, Device device) {
  const auto made = recipe.model->make_model();
  Model& model = *made;
  Costs c;
  c.parameters = model.parameters().count();
  const SequenceCost cost = model.cost(model.context());
  c.flops_per_step = cost.training_flops * static_cast<double>(recipe.train.global_batch);
  if (const auto* mixes = capability<MixesPositions>(model)) c.looks_ahead = mixes->mixer(0).key_rows().ahead;
  c.attention_density = cost.dense_pairs > 0 ? cost.allowed_pairs / cost.dense_pairs : 0;
  c.states = states_of(model);
  c.looks_back = memory_facts(model, {compute_type(recipe.train.precision, device), Dtype::f32});
  c.tokens = positions_before(recipe.train, recipe.train.steps, model.context());
  c.stages = stage_costs(recipe, model);
  double flops = 0;
  for (const StageCost& s : c.stages) flops += s.flops_per_step * static_cast<double>(s.steps.end - s.steps.first);
  if (recipe.train.stages.empty()) c.stages.clear();
  c.memory = plan_memory(model, recipe.train, options.ranks, device);
  c.room = room_of(options, device);
  if (device == Device::cuda && c.memory.compute != Dtype::f32) c.slow_attention = slow_attention(model);
  if (fp8_products(recipe.train.precision, device)) c.fp8 = narrow_fp8(model);
  c.rate = rate_of(options, device);
  c.seconds = flops / (c.rate.flops_per_second() * options.ranks);
  c.batching = divide_batch(recipe.train, options.ranks);
  c.other_stride = stride_of_other_pictures(recipe, model);
  look_at_data(recipe, c);
  return c;
}

nlohmann::ordered_json to_json(const Recipe& recipe, const Costs& c, const PlanOptions& o) {
  const MemoryPlan& m = c.memory;
  nlohmann::ordered_json out = {{"recipe", recipe.name},
                                {"parameters", c.parameters},
                                {"flops_per_step", c.flops_per_step},
                                {"attention_density", c.attention_density},
                                {"steps", recipe.train.steps},
                                {"tokens", c.tokens},
                                {"ranks", o.ranks},
                                {"device", m.device == Device::cpu ? "cpu" : "gpu"},
                                {"compute", precision_text(m.compute)},
                                {"micro_batch", c.batching.micro},
                                {"accumulation", c.batching.accumulation()},
                                {"seconds", c.seconds},
                                {"mfu", c.rate.mfu},
                                {"peak_tflops", c.rate.peak_tflops},
                                {"peak_measured", c.rate.measured}};
  if (!c.states.empty()) out["states"] = c.states;
  if (c.looks_back) out["memory"] = as_json(*c.looks_back);
  if (!c.slow_attention.empty()) out["slow_attention"] = c.slow_attention;
  if (!c.fp8.empty()) out["fp8"] = c.fp8;
  if (!c.other_stride.empty()) out["other_stride"] = c.other_stride;
  if (c.passes) out["train_bytes"] = c.passes->train_bytes, out["passes"] = c.passes->count;
  for (const StageCost& s : c.stages)
    out["stages"].push_back({{"until", s.steps.end},
                             {"context", s.steps.shape.sequence()},
                             {"sequences", s.steps.shape.rows * s.steps.shape.sequences},
                             {"lr", recipe.train.peak_at(s.steps.end - 1)},
                             {"flops_per_step", s.flops_per_step}});
  if (c.recompute) out["recompute"] = c.recompute->policy.name;
  out["bytes_per_rank"] = {{"parameters", m.parameters},
                           {"gradients", m.gradients},
                           {"exchange", m.exchange},
                           {"optimizer", m.optimizer},
                           {"average", m.average},
                           {"states", m.states},
                           {"batch", m.batch},
                           {"libraries", m.libraries},
                           {"activations", m.activations},
                           {"tape", m.tape},
                           {"input", m.input},
                           {"communication", m.communication},
                           {"snapshot", m.snapshot},
                           {"block", m.block()},
                           {"total", m.total()}};
  if (c.room.bytes) out.update({{"free_bytes", *c.room.bytes}, {"fits", c.fits()}});
  return out;
}

std::string moments_text(const TrainConfig& train) {
  switch (train.optimizer) {
    case OptimizerKind::adam:
      return "Adam's two moments";
    case OptimizerKind::muon:
      return "Adam's two moments; Muon's momentum is in the first";
    case OptimizerKind::adagrad:
      return "Adagrad's sum of squares";
    case OptimizerKind::adafactor:
      return train.beta1 > 0 ? "Adafactor's momentum, and means of rows and columns"
                             : "Adafactor's means of rows and columns";
  }
  return "";
}

void print_text(const Recipe& recipe, const Costs& c, const PlanOptions& o) {
  const auto line = [](const char* what, const std::string& value) { fmt::print("{:<22}{}\n", what, value); };
  const auto memory = [&](const char* what, std::int64_t bytes, const char* note) {
    fmt::print("  {:<20}{:>18} bytes {:>9.3f} GiB  {}\n", what, thousands(bytes), gib(bytes), note);
  };
  line("recipe", recipe.name);
  const std::string exact = thousands(c.parameters), rounded = in_millions(static_cast<double>(c.parameters));
  line("parameters", exact == rounded ? exact : fmt::format("{} ({})", exact, rounded));
  if (recipe.reproduces.given())
    line("reproduces", fmt::format("{}, {}: {} bits per byte", recipe.reproduces.where(), recipe.reproduces.row,
                                   recipe.reproduces.bits_per_byte));
  line("batch", fmt::format("{} of {} per step: {}", counted(recipe.train.global_batch, "sequence"),
                            recipe.data.context, text_of(c.batching, o.ranks)));
  if (recipe.data.documents != Documents::joined) line("documents", name_of(recipe.data.documents));
  const bool attends = c.attention_density > 0;
  if (c.looks_back)
    for (const auto& [what, value] : as_lines(*c.looks_back)) line(what, value);
  else if (attends)
    line("attention", fmt::format("{:.3g}% of the{} pairs", 100 * c.attention_density, c.looks_ahead ? "" : " causal"));
  for (const std::string& state : c.states) line("states", state);
  if (!c.slow_attention.empty()) line("slow", c.slow_attention);
  if (!c.fp8.empty()) line("fp8", c.fp8);
  line("operations", fmt::format("{:.4g} TFLOP per step (6 x parameters{}; recompute not counted)",
                                 c.flops_per_step / 1e12, attends ? " + the pattern's pairs" : ""));
  for (const StageCost& s : c.stages)
    line(&s == c.stages.data() ? "stages" : "",
         fmt::format("until step {}: {} of {}, {:.4g} TFLOP per step, lr {:.4g}", s.steps.end,
                     counted(s.steps.shape.rows * s.steps.shape.sequences, "sequence"), s.steps.shape.sequence(),
                     s.flops_per_step / 1e12, recipe.train.peak_at(s.steps.end - 1)));
  line("steps", fmt::format("{} ({:.4g} tokens)", thousands(recipe.train.steps), static_cast<double>(c.tokens)));
  line("data", c.passes ? c.passes->text() : c.no_data);
  if (c.passes && !c.passes->warning().empty()) line("warning", c.passes->warning());
  if (!c.other_stride.empty()) line("warning", c.other_stride);
  line("time",
       fmt::format("{} ({:.3g} hours) at {:.3g}% of {:.3g} TFLOP/s on {}{}", duration_text(c.seconds), c.seconds / 3600,
                   100 * c.rate.mfu, c.rate.peak_tflops,
                   o.ranks == 1 ? "one device" : fmt::format("each of {} devices", o.ranks),
                   c.rate.measured ? ", measured here with matrix products; --device gpu plans for a GPU" : ""));
  if (c.recompute) line("recompute", c.recompute->text);
  const MemoryPlan& m = c.memory;
  const bool gpu = m.device == Device::cuda;
  fmt::print("memory per rank, on {} in {}{}\n", gpu ? "a GPU" : "the CPU", precision_text(m.compute),
             fp8_products(recipe.train.precision, m.device) ? ", products of linear layers in fp8" : "");
  memory("parameters", m.parameters, m.compute == Dtype::f32 ? "fp32" : "fp32, and a low-precision copy");
  memory("gradients", m.gradients, "");
  if (m.exchange > 0) memory("exchange", m.exchange, "gradients in transit between ranks");
  const bool shared = recipe.train.parallel.shard && o.ranks > 1;
  memory("optimizer", m.optimizer, (moments_text(recipe.train) + (shared ? ", this rank's part" : "")).c_str());
  if (m.average > 0) memory("average", m.average, "running average of weights");
  if (m.states > 0) memory("states", m.states, "what the rows remember of their streams");
  memory("batch", m.batch, "tokens of a step, losses of a micro-batch");
  if (gpu) memory("libraries", m.libraries, "workspace of cuBLASLt");
  memory("activations", m.activations, fmt::format("of which {} saved for backward", thousands(m.tape)).c_str());
  if (gpu) memory("on the GPU", m.block(), "in one allocation");
  memory("input", m.input, gpu ? "on the host: rows read ahead and in transit" : "rows read ahead");
  if (m.communication > 0) memory("communication", m.communication, "");
  memory("snapshot", m.snapshot, "on the host: what a checkpoint is written from");
  memory("total", m.total(), "");
  if (c.room.bytes)
    line(c.fits() ? "fits" : "does not fit", fmt::format("{:.3f} GiB are {}{}", gib(*c.room.bytes), c.room.origin,
                                                         o.ranks > 1 && !gpu ? ", for all ranks that run here" : ""));
}

}  // namespace

void add_plan(CLI::App& app, Session& session) {
  auto options = std::make_shared<PlanOptions>();
  CLI::App* plan =
      app.add_subcommand("plan", "Parameters, operations, exact memory per rank, steps and time of a recipe");
  plan->add_option("recipe", options->recipe, "recipe file")->required();
  plan->add_option("--set", options->overrides, "override a key, as in --set model.layers=12");
  plan->add_option("--ranks", options->ranks, "ranks (devices) to divide the batch over")
      ->capture_default_str()
      ->check(CLI::Range(1, 1 << 20));
  plan->add_option("--mfu", options->mfu,
                   "model FLOP utilisation to assume for the time; default: 0.35, on the CPU 0.5")
      ->check(CLI::Range(1e-4, 1.0));
  plan->add_option("--peak-tflops", options->peak_tflops,
                   "peak TFLOP/s of one device; default: an H200's, or measured on this CPU")
      ->check(above_zero());
  plan->add_option("--memory", options->memory,
                   "GiB that a rank may take, for model.recompute: automatic; default: what is free here")
      ->check(above_zero());
  add_device_option(*plan, options->device);
  add_json_option(*plan, options->json);
  plan->callback([options, &session] {
    Recipe recipe = read_recipe(options->recipe, options->overrides);
    if (session.comm->rank() != 0) return;
    const Device device = planned_device(options->device);
    check_device_computes(*recipe.model->make_model(), device);
    const auto recompute = chosen_recompute(recipe, *options, device);
    Costs costs = costs_of(recipe, *options, device);
    costs.recompute = recompute;
    if (options->json)
      print_json(to_json(recipe, costs, *options));
    else
      print_text(recipe, costs, *options);
  });
}

}  // namespace longstride
