#include "framework/train/trainer.h"

#include <spdlog/spdlog.h>

#include <chrono>
#include <cmath>
#include <filesystem>
#include <numbers>
#include <optional>

#include "datasets/prefetcher.h"
#include "framework/core/errors.h"
#include "framework/ops/basic.h"
#include "framework/optim/optimizer.h"
#include "framework/train/checkpoint.h"
#include "framework/train/evaluator.h"
#include "framework/train/memory_plan.h"
#include "framework/train/metrics.h"
#include "framework/train/progress.h"
#include "framework/train/stop.h"
#include "framework/train/training_state.h"

namespace longstride {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point begin) { return std::chrono::duration<double>(Clock::now() - begin).count(); }

class Trainer {
 public:
  explicit Trainer(const TrainerSetup& setup);
  TrainingOutcome run();

 private:
  bool first_rank() const { return setup_.comm->rank() == 0; }
  std::int64_t step_tokens() const { return setup_.config.global_batch * setup_.model->context(); }
  TrainingTensors tensors() {
    return {setup_.model->parameters(), state_.optimizer.m, state_.optimizer.v, state_.optimizer.ema};
  }
  void start_or_resume();
  void train_step(const std::uint8_t* rows);
  void refuse_non_finite() const;
  void report();
  void evaluate_now();
  void save();

  TrainerSetup setup_;
  Batching batching_;
  TrainingState state_;
  Context ctx_;
  Optimizer optimizer_;
  std::int64_t step_ = 0;    // optimizer steps taken; kernels read it through ctx_.step
  std::int64_t saved_ = -1;  // step of the last checkpoint
  double loss_ = 0;          // mean nats a byte of the last step's global batch
  std::optional<MetricsWriter> metrics_;
  std::optional<ProgressLine> progress_;
  Clock::time_point interval_begin_;
  std::int64_t interval_step_ = 0;
};

Trainer::Trainer(const TrainerSetup& setup)
    : setup_(setup),
      batching_(divide_batch(setup.config, setup.comm->size())),
      state_(*setup_.model, plan_memory(*setup_.model, setup.config, setup.comm->size()), batching_.micro,
             setup_.model->context()),
      optimizer_(optimizer_config(setup.config), state_.optimizer, setup.model->parameters().decayed_size()) {
  ctx_.arena = &state_.arena();
  ctx_.seed = setup.config.seed;
  ctx_.step = &step_;
  start_or_resume();
  if (first_rank()) {
    metrics_.emplace(setup_.run, step_);
    progress_.emplace(stderr);
  }
}

void Trainer::start_or_resume() {
  if (setup_.resume) {
    const CheckpointState found = resume_from_checkpoint(*setup_.comm, setup_.run, tensors(), state_.masters);
    step_ = saved_ = found.step;
    if (found.seed != setup_.config.seed)
      throw user_error("train.seed is {}, but the run in {} began with {}; give it the same seed", setup_.config.seed,
                       setup_.run, found.seed);
    if (first_rank()) spdlog::info("resuming {} at step {}", setup_.run, step_);
    return;
  }
  setup_.model->parameters().initialise(setup_.config.seed);
  optimizer_.start(ctx_, state_.masters);
}

// One optimizer step on this rank's rows of the global batch.
void Trainer::train_step(const std::uint8_t* rows) {
  const std::int64_t context = setup_.model->context();
  const std::int64_t first = setup_.comm->rank() * batching_.per_rank;
  const double scale = 1.0 / static_cast<double>(step_tokens());
  ops::fill_zero(ctx_, state_.gradients);
  double nats = 0;
  const Tensor total(&nats, Dtype::f64, {1});
  for (std::int64_t begin = 0; begin < batching_.per_rank; begin += batching_.micro) {
    ctx_.first_row = first + begin;
    std::copy_n(rows + begin * context, batching_.micro * context, state_.tokens.as<std::uint8_t>());
    setup_.model->loss_and_gradients(ctx_, state_.tokens, scale, state_.losses);
    ops::sum(ctx_, state_.losses, total);
  }
  setup_.comm->all_reduce_sum(&nats, 1);
  setup_.comm->all_reduce_sum(state_.gradients.as<float>(), state_.gradients.count());
  loss_ = nats * scale;
  optimizer_.step(ctx_, state_.masters, state_.gradients);
  refuse_non_finite();
  ++step_;
}

void Trainer::refuse_non_finite() const {
  if (std::isfinite(loss_) && std::isfinite(optimizer_.scalars()->gradient_norm)) return;
  throw user_error(
      "the {} of step {} is not finite; the last checkpoint is step {}. Lower train.lr or lengthen train.warmup",
      std::isfinite(loss_) ? "gradient" : "loss", step_ + 1, std::max<std::int64_t>(saved_, 0));
}

void Trainer::report() {
  if (!first_rank()) return;
  const double seconds = seconds_since(interval_begin_);
  const auto steps = static_cast<double>(step_ - interval_step_);
  const double rate = steps * static_cast<double>(step_tokens()) / seconds;
  const double bits = loss_ / std::numbers::ln2;
  metrics_->write(
      StepMetrics{step_, loss_, bits, optimizer_.scalars()->learning_rate, optimizer_.scalars()->gradient_norm, rate});
  progress_->update(
      {step_, setup_.config.steps, bits, rate, {}, static_cast<double>(setup_.config.steps - step_) * seconds / steps});
  interval_begin_ = Clock::now();
  interval_step_ = step_;
}

void Trainer::evaluate_now() {
  if (setup_.validation == nullptr) return;
  EvaluationConfig config;
  config.context = setup_.model->context();
  config.batch = batching_.micro;
  config.max_windows = setup_.config.evaluate_windows;
  const Clock::time_point begin = Clock::now();
  const EvaluationResult result = evaluate(*setup_.model, ctx_, *setup_.validation, config, *setup_.comm);
  if (first_rank() && result.bytes > 0) {
    metrics_->write(
        EvaluationMetrics{step_, "valid", result.loss(), result.bits_per_byte(), result.bytes, seconds_since(begin)});
    progress_->finish();
    spdlog::info("step {}: valid {:.4f} bits per byte over {} bytes", step_, result.bits_per_byte(), result.bytes);
  }
  interval_begin_ = Clock::now();
  interval_step_ = step_;
}

void Trainer::save() {
  if (saved_ == step_) return;
  if (first_rank()) {
    CheckpointState state;
    state.step = step_;
    state.seed = setup_.config.seed;
    state.tokens_seen = step_ * step_tokens();
    state.global_batch = setup_.config.global_batch;
    state.world_size = setup_.comm->size();
    state.recipe = setup_.recipe;
    state.loss = loss_;
    save_checkpoint(setup_.run, state, tensors(), setup_.config.keep);
  }
  setup_.comm->barrier();
  saved_ = step_;
}

TrainingOutcome Trainer::run() {
  const TrainConfig& c = setup_.config;
  TrainingOutcome outcome;
  const auto due = [&](std::int64_t every) { return every > 0 && step_ % every == 0; };
  Prefetcher prefetcher(*setup_.data, step_, c.global_batch, setup_.comm->rank() * batching_.per_rank,
                        batching_.per_rank, prefetch_depth);
  interval_begin_ = Clock::now();
  interval_step_ = step_;
  while (step_ < c.steps && !outcome.stopped) {
    train_step(prefetcher.next());
    if (due(c.log_every) || step_ == c.steps) report();
    if (due(c.evaluate_every) || step_ == c.steps) evaluate_now();
    outcome.stopped = setup_.comm->any(stop_requested());
    if (due(c.checkpoint_every) || step_ == c.steps || outcome.stopped) save();
  }
  if (first_rank()) progress_->finish();
  outcome.step = step_;
  outcome.loss = loss_;
  return outcome;
}

}  // namespace

TrainingOutcome train(const TrainerSetup& setup) {
  Trainer trainer(setup);
  return trainer.run();
}

}  // namespace longstride
