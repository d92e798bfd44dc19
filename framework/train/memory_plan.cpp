#include "framework/train/memory_plan.h"

#include <algorithm>

#include "framework/comm/communicator.h"
#include "framework/core/errors.h"
#include "framework/train/evaluator.h"

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

Optimizer::Config optimizer_config(const TrainConfig& c) {
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
  return o;
}

MemoryPlan plan_memory(Model& model, const TrainConfig& config, int ranks, Dtype dtype) {
  const Batching batching = divide_batch(config, ranks);
  const auto flat = [&](std::int64_t copies) {
    const auto bytes = static_cast<std::size_t>(model.parameters().flat_size()) * bytes_of(dtype);
    return copies * static_cast<std::int64_t>(Arena::rounded(bytes));
  };
  MemoryPlan plan;
  plan.parameters = flat(1);
  plan.gradients = flat(1);
  plan.optimizer = flat(2) + static_cast<std::int64_t>(Arena::rounded(Optimizer::scalars_bytes));
  plan.average = config.ema > 0 ? flat(1) : 0;
  plan.input = prefetch_depth * batching.per_rank * model.context();
  plan.communication = static_cast<std::int64_t>(communicator_workspace_bytes(ranks));

  const Shape shape = {batching.micro, model.context()};
  const Tensor tokens(nullptr, Dtype::u8, shape), losses(nullptr, dtype, shape);
  plan.batch = static_cast<std::int64_t>(Arena::rounded(tokens.bytes()) + Arena::rounded(losses.bytes()));

  const Tensor none(nullptr, dtype, {model.parameters().flat_size()});
  model.parameters().bind(none, none);
  Arena counting;
  Context ctx;
  ctx.arena = &counting;
  ctx.compute = ctx.residual = dtype;
  const std::int64_t step = 0;
  ctx.step = &step;
  model.loss_and_gradients(ctx, tokens, 1.0, losses);
  const Tensor scalars(nullptr, Dtype::u8, {static_cast<std::int64_t>(Optimizer::scalars_bytes)});
  Optimizer optimizer(optimizer_config(config), {none, none, config.ema > 0 ? none : Tensor{}, scalars},
                      model.parameters().decayed_size());
  optimizer.step(ctx, none, none);
  plan.tape = static_cast<std::int64_t>(counting.tape_high_water());
  EvaluationConfig evaluation;
  evaluation.context = model.context();
  evaluation.batch = batching.micro;
  plan.activations =
      static_cast<std::int64_t>(std::max(counting.high_water(), evaluation_bytes(model, ctx, evaluation)));
  return plan;
}

}  // namespace longstride
