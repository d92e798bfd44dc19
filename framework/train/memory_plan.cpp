#include "framework/train/memory_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>

#include "framework/comm/communicator.h"
#include "framework/core/errors.h"
#include "framework/ops/basic.h"
#include "framework/train/checkpoint_writer.h"
#include "framework/train/precision.h"

namespace longstride {

Batching divide_batch(const TrainConfig& config, int ranks) {
  if (config.global_batch % ranks != 0)
    throw user_error("train.global_batch is {}, which {} ranks do not divide; choose a multiple of {} or other ranks",
                     config.global_batch, ranks, ranks);
  Batching b;
  b.per_rank = config.global_batch / ranks;
  b.micro = config.micro_batch > 0 ? std::min(config.micro_batch, b.per_rank) : b.per_rank;
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

namespace {

std::int64_t rounded(const Tensor& t) { return static_cast<std::int64_t>(Arena::rounded(t.bytes())); }

// What training takes from the arena: the step itself, and the evaluations between steps.
void count_activations(Model& model, const TrainConfig& config, const Batching& batching, MemoryPlan& plan) {
  const Shape shape = {batching.micro, model.context()}, flat = {model.parameters().flat_size()};
  const Tensor tokens(nullptr, Dtype::u8, shape), losses(nullptr, Dtype::f32, shape), none(nullptr, Dtype::f32, flat);
  const Tensor low = plan.compute == Dtype::f32 ? Tensor{} : Tensor(nullptr, plan.compute, flat);
  model.parameters().bind(none, none, low);
  Arena counting;
  Context ctx;
  ctx.device = plan.device;
  ctx.arena = &counting;
  ctx.compute = plan.compute;
  const std::int64_t step = 0;
  ctx.step = &step;
  model.loss_and_gradients(ctx, tokens, 1.0, losses);
  ops::sum(ctx, losses, Tensor(nullptr, Dtype::f64, {1}));
  const Tensor scalars(nullptr, Dtype::u8, {static_cast<std::int64_t>(Optimizer::scalars_bytes)});
  Optimizer optimizer(optimizer_config(config, plan.device), {none, none, config.ema > 0 ? none : Tensor{}, scalars},
                      model.parameters().decayed_size());
  optimizer.step(ctx, none, none, low);
  plan.tape = static_cast<std::int64_t>(counting.tape_high_water());
  const EvaluationConfig evaluation = validation_config(config, batching, model.context());
  plan.activations =
      static_cast<std::int64_t>(std::max(counting.high_water(), evaluation_bytes(model, ctx, evaluation)));
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
  MemoryPlan plan;
  plan.device = device;
  plan.compute = compute_type(config.precision, device);
  const Shape shape = {model.parameters().flat_size()};
  const std::int64_t flat = rounded(Tensor(nullptr, Dtype::f32, shape));
  plan.parameters = flat + (plan.compute == Dtype::f32 ? 0 : rounded(Tensor(nullptr, plan.compute, shape)));
  plan.gradients = flat;
  plan.optimizer = 2 * flat + static_cast<std::int64_t>(Arena::rounded(Optimizer::scalars_bytes));
  plan.average = config.ema > 0 ? flat : 0;
  const std::int64_t tokens = batching.per_rank * model.context();
  plan.batch = staging_bytes(tokens) + rounded(Tensor(nullptr, Dtype::f64, {1})) +
               rounded(Tensor(nullptr, Dtype::f32, {batching.micro, model.context()}));
  plan.input = prefetch_depth * tokens;
  if (device == Device::cuda) {
    plan.libraries = static_cast<std::int64_t>(library_workspace_bytes);
    plan.input += staging_buffers * staging_bytes(tokens);
    plan.input += exchange_bytes(Device::cuda, validation_config(config, batching, model.context()));
  }
  plan.snapshot = snapshot_bytes(ranks, model.parameters().flat_size(), config.ema > 0, false);
  plan.communication = static_cast<std::int64_t>(communicator_workspace_bytes(ranks));
  count_activations(model, config, batching, plan);
  return plan;
}

void check_fits(Model& model, const TrainConfig& config, int ranks, const MemoryPlan& plan, std::int64_t free) {
  if (plan.block() <= free) return;
  const auto gib = [](std::int64_t bytes) { return static_cast<double>(bytes) / (1 << 30); };
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
