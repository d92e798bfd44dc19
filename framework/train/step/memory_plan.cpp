#include "framework/train/step/memory_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>

#include "framework/comm/communicator.h"
#include "framework/core/errors.h"
#include "framework/core/text/numbers.h"
#include "framework/ops/basic.h"
#include "framework/train/checkpoint/checkpoint_writer.h"
#include "framework/train/ranks/gradient_exchange.h"
#include "framework/train/ranks/rank_group.h"
#include "framework/train/step/precision.h"

namespace longstride {

Batching divide_batch(const TrainConfig& config, int ranks) {
  Batching b;
  b.context = static_cast<int>(config.parallel.context);
  if (ranks % b.context != 0)
    throw user_error("parallel.context is {}, which does not divide {} ranks; choose a divisor or other ranks",
                     b.context, ranks);
  const int groups = ranks / b.context;
  if (config.global_batch % groups != 0)
    throw user_error("train.global_batch is {}, which {} {} do not divide; choose a multiple of {} or other ranks",
                     config.global_batch, groups, b.context > 1 ? "groups of ranks" : "ranks", groups);
  b.per_rank = config.global_batch / groups;
  if (b.context > 1 && config.micro_batch > 1)
    throw user_error(
        "train.micro_batch is {}, but ranks that share sequences (parallel.context {}) take one at a time; "
        "set it to 1",
        config.micro_batch, b.context);
  const std::int64_t whole = b.context > 1 ? 1 : b.per_rank;
  b.micro = config.micro_batch > 0 ? std::min(config.micro_batch, whole) : whole;
  if (b.per_rank % b.micro != 0)
    throw user_error(
        "train.micro_batch is {}, which does not divide the {} sequences of each of {} ranks; choose a "
        "divisor of {}",
        b.micro, b.per_rank, ranks, b.per_rank);
  return b;
}

Optimizer::Config optimizer_config(const TrainConfig& c, Device device) {
  Optimizer::Config o;
  o.lr = c.lr;
  o.warmup = c.warmup;
  o.steps = c.steps;
  o.beta1 = c.beta1;
  o.beta2 = c.beta2;
  o.epsilon = c.epsilon;
  o.weight_decay = c.weight_decay;
  o.clip = c.clip;
  o.ema = c.ema;
  o.dynamic_loss_scale = resolved(c.precision, device) == Precision::fp16;
  return o;
}

std::vector<HiddenMatrix> orthogonalised_matrices(const ParameterSet& parameters, const TrainConfig& config) {
  if (config.optimizer == OptimizerKind::adam) return {};
  LONGSTRIDE_CHECK(!config.parallel.shard, "Muon with a part of a matrix");
  return hidden_matrices(parameters);
}

Dtype gradient_type(const TrainConfig& config, Device device) {
  const Precision asked = config.parallel.gradients;
  const Dtype type = compute_type(asked == Precision::automatic ? config.precision : Precision::fp32, device);
  if (asked == Precision::automatic || asked == Precision::fp32) return type;
  if (device == Device::cpu)
    throw user_error(
        "parallel.gradients is {}, which needs GPUs, and this runs on the CPU; use --set "
        "parallel.gradients=fp32",
        name_of(asked));
  return asked == Precision::bf16 ? Dtype::bf16 : Dtype::f16;
}

bool exchanges(const TrainConfig& config, int ranks) { return ranks > 1 || config.parallel.exchange_alone; }

std::int64_t optimizer_elements(const ParameterSet& parameters, const TrainConfig& config, int ranks) {
  return config.parallel.shard ? parameters.flat_size() / ranks : parameters.flat_size();
}

namespace {

std::int64_t rounded(const Tensor& t) { return static_cast<std::int64_t>(Arena::rounded(t.bytes())); }

// What training takes from the arena: the step itself, and the evaluations between steps. Ranks of a group may have
// heads of different parts, and take a little more or less: all plan for the most.
void count_activations(Model& model, const TrainConfig& config, int ranks, const Batching& batching, MemoryPlan& plan) {
  const Shape shape = {batching.micro, model.context()}, flat = {model.parameters().flat_size()};
  const Tensor tokens(nullptr, Dtype::u8, shape), none(nullptr, Dtype::f32, flat);
  const Tensor losses(nullptr, Dtype::f32, {batching.micro, model.context() / batching.context});
  const Tensor state(nullptr, Dtype::f32, {optimizer_elements(model.parameters(), config, ranks)});
  const Tensor low = plan.compute == Dtype::f32 ? Tensor{} : Tensor(nullptr, plan.compute, flat);
  model.parameters().bind(none, none, low);
  Arena counting;
  Context ctx;
  ctx.device = plan.device;
  ctx.arena = &counting;
  ctx.compute = plan.compute;
  ctx.narrow_stream = narrow_stream(config, plan.device);
  const std::int64_t step = 0;
  ctx.step = &step;
  const EvaluationConfig evaluation = validation_config(config, batching, model.context());
  std::size_t evaluating = 0;
  for (int index = 0; index < batching.context; ++index) {
    const RankGroup group(nullptr, index, batching.context);
    ctx.group = batching.context > 1 ? &group : nullptr;
    model.loss_and_gradients(ctx, tokens, 1.0, losses);
    for (const Stage& stage : config.stages) {
      const Shape cut = {tokens.count() / stage.context, stage.context};
      model.loss_and_gradients(ctx, tokens.reshape(cut), 1.0, losses.reshape(cut));
    }
    evaluating = std::max(evaluating, evaluation_bytes(model, ctx, evaluation));
  }
  ctx.group = nullptr;
  ops::sum(ctx, losses, Tensor(nullptr, Dtype::f64, {1}));
  const Tensor scalars(nullptr, Dtype::u8, {static_cast<std::int64_t>(Optimizer::scalars_bytes)});
  Optimizer optimizer(optimizer_config(config, plan.device), {state, state, config.ema > 0 ? state : Tensor{}, scalars},
                      updated_pieces(model.parameters(), config, 0, ranks),
                      orthogonalised_matrices(model.parameters(), config));
  optimizer.measure(ctx, none, pieces_of(model.parameters(), 0, ranks));
  optimizer.update(ctx, none, none, low);
  plan.tape = static_cast<std::int64_t>(counting.tape_high_water());
  plan.activations = static_cast<std::int64_t>(std::max(counting.high_water(), evaluating));
}

}  // namespace

EvaluationConfig validation_config(const TrainConfig& config, const Batching& batching, std::int64_t context) {
  EvaluationConfig evaluation;
  evaluation.context = context;
  evaluation.batch = batching.micro;
  evaluation.max_windows = config.evaluate_windows;
  return evaluation;
}

std::int64_t staging_bytes(std::int64_t tokens) {
  return static_cast<std::int64_t>(Arena::rounded(sizeof(std::int64_t)) +
                                   Arena::rounded(static_cast<std::size_t>(tokens)));
}

MemoryPlan plan_memory(Model& model, const TrainConfig& config, int ranks, Device device) {
  const Batching batching = divide_batch(config, ranks);
  if (batching.context > 1)
    required<DividesSequences>(model, "divide sequences between ranks; set parallel.context to 1")
        .check_group(batching.context);
  MemoryPlan plan;
  plan.device = device;
  plan.compute = compute_type(config.precision, device);
  model.parameters().lay_out(ranks, config.parallel.bucket);
  const Shape shape = {model.parameters().flat_size()};
  const std::int64_t flat = rounded(Tensor(nullptr, Dtype::f32, shape));
  plan.parameters = flat + (plan.compute == Dtype::f32 ? 0 : rounded(Tensor(nullptr, plan.compute, shape)));
  plan.gradients = flat;
  const Dtype wire = gradient_type(config, device);
  if (exchanges(config, ranks) && wire != Dtype::f32) plan.exchange = rounded(Tensor(nullptr, wire, shape));
  const std::int64_t state =
      rounded(Tensor(nullptr, Dtype::f32, {optimizer_elements(model.parameters(), config, ranks)}));
  plan.optimizer = 2 * state + static_cast<std::int64_t>(Arena::rounded(Optimizer::scalars_bytes));
  plan.average = config.ema > 0 ? state : 0;
  const std::int64_t tokens = batching.per_rank * model.context();
  plan.batch = staging_bytes(tokens) + rounded(Tensor(nullptr, Dtype::f64, {1})) +
               rounded(Tensor(nullptr, Dtype::f32, {batching.micro, model.context() / batching.context}));
  plan.input = prefetch_depth * tokens;
  if (device == Device::cuda) {
    plan.libraries = static_cast<std::int64_t>(library_workspace_bytes);
    plan.input += staging_buffers * staging_bytes(tokens);
    plan.input += exchange_bytes(Device::cuda, validation_config(config, batching, model.context()));
  }
  plan.snapshot = snapshot_bytes(ranks, model.parameters().flat_size(), config.ema > 0, config.parallel.shard);
  plan.communication = static_cast<std::int64_t>(communicator_workspace_bytes(ranks));
  count_activations(model, config, ranks, batching, plan);
  return plan;
}

void check_fits(Model& model, const TrainConfig& config, int ranks, const MemoryPlan& plan, std::int64_t free) {
  if (plan.block() <= free) return;
  const Batching batching = divide_batch(config, ranks);
  std::string advice = "no micro-batch fits: set model.recompute: block, or take a smaller model or context";
  for (std::int64_t micro = batching.micro - 1; micro > 0; --micro) {
    if (batching.per_rank % micro != 0) continue;
    TrainConfig smaller = config;
    smaller.micro_batch = micro;
    const std::int64_t bytes = plan_memory(model, smaller, ranks, plan.device).block();
    if (bytes > free) continue;
    advice = fmt::format("the largest train.micro_batch that fits is {}, with {:.2f} GiB", micro, gib(bytes));
    break;
  }
  throw user_error("{:.2f} GiB of GPU memory are needed for {} sequences at a time, and {:.2f} are free; {}",
                   gib(plan.block()), batching.micro, gib(free), advice);
}

}  // namespace longstride
