#include "framework/train/step/memory_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>

#include "framework/core/errors.h"
#include "framework/core/text/numbers.h"
#include "framework/train/checkpoint/checkpoint_writer.h"
#include "framework/train/sample/training_samples.h"
#include "framework/train/step/prefetcher.h"
#include "framework/train/step/staging.h"
#include "framework/train/step/step_work.h"

namespace longstride {
namespace {

// Counts what training takes from the arena: in every stage a step of one micro-batch, and the evaluations and samples
// between its steps. Ranks of a group may hold heads of different parts and need slightly different amounts, so all
// plan for the maximum.
void count_activations(Model& model, const TrainConfig& config, int ranks, TrainingState& state, MemoryPlan& plan) {
  const Batching batching = divide_batch(config, ranks);
  const EvaluationConfig evaluation = validation_config(config, batching, model.context());
  Context ctx = state.context(config, Queue());
  std::size_t between = 0;  // steps
  for (int index = 0; index < batching.sequence_ranks; ++index) {
    const RankLinks links(index, ranks, config.parallel, batching);
    ctx.group = links.group();
    StepWork work(model, config, state, links, Queue());
    for (const StageSteps& steps : stretches(config, model.context())) {
      enter_stage(model, steps.stage);
      work.run(ctx, steps.shape, divide_batch(steps.shape, config.parallel, ranks).micro);
      between = std::max(between, evaluation_bytes(model, ctx.without_fp8(), evaluation));
      if (config.sample_every == 0) continue;
      const SampleMemory sampling = sample_memory(model, sampling_context(ctx), training_samples(config, model));
      between = std::max(between, static_cast<std::size_t>(sampling.total));
    }
  }
  enter_stage(model, nullptr);
  plan.tape = static_cast<std::int64_t>(state.arena().tape_high_water());
  plan.activations = static_cast<std::int64_t>(std::max(state.arena().high_water(), between));
}

}  // namespace

EvaluationConfig validation_config(const TrainConfig& config, const Batching& batching, std::int64_t context) {
  EvaluationConfig evaluation;
  evaluation.context = context;
  evaluation.batch = batching.micro;
  evaluation.streams = config.global_batch;
  evaluation.max_windows = config.evaluate_windows;
  return evaluation;
}

MemoryPlan plan_memory(Model& model, const TrainConfig& config, int ranks, Device device) {
  const Batching batching = divide_batch(config, ranks);
  if (batching.sequence_ranks > 1)
    required<DividesSequences>(model, "divide sequences between ranks; set parallel.sequence_ranks to 1")
        .check_group(batching.sequence_ranks);
  check_training_samples(config, model, batching);
  TrainingState state(model, config, ranks, device);
  MemoryPlan plan = state.sizes();
  plan.input = static_cast<std::int64_t>(Prefetcher::bytes_of(state.most_batch_bytes(), prefetch_depth)) +
               Staging::bytes_on_host(device, state.input) +
               evaluation_host_bytes(model, device, validation_config(config, batching, model.context()));
  plan.snapshot = snapshot_bytes(ranks, state.saved(model, config, 0));
  plan.communication = static_cast<std::int64_t>(communicator_workspace_bytes(ranks));
  count_activations(model, config, ranks, state, plan);
  return plan;
}

void check_fits(Model& model, const TrainConfig& config, int ranks, const MemoryPlan& plan, const MemoryLimit& limit) {
  if (!limit.bytes || plan.on_device() <= *limit.bytes) return;
  const Batching batching = divide_batch(config, ranks);
  std::string advice =
      "no micro-batch fits: use a smaller model or context, or set model.recompute: block unless it is set already";
  for (std::int64_t micro = batching.micro - 1; micro > 0; --micro) {
    if (batching.per_rank % micro != 0) continue;
    TrainConfig smaller = config;
    smaller.micro_batch = micro;
    const std::int64_t bytes = plan_memory(model, smaller, ranks, plan.device).on_device();
    if (bytes > *limit.bytes) continue;
    advice = fmt::format("the largest train.micro_batch that fits is {}, with {:.3f} GiB", micro, gib(bytes));
    break;
  }
  throw user_error("{:.3f} GiB of {}memory per rank are needed for {} at a time, but only {:.3f} are {}; {}",
                   gib(plan.on_device()), shares_host_memory(plan.device) ? "" : "GPU ",
                   counted(batching.micro, "sequence"), gib(*limit.bytes), limit.origin, advice);
}

}  // namespace longstride
