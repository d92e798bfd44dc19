#include "framework/train/step/step_work.h"

#include "framework/ops/basic.h"
#include "framework/ops/state.h"
#include "framework/train/step/precision.h"

namespace longstride {
namespace {

int ranks_of(const RankLinks& links) { return links.all() == nullptr ? 1 : links.all()->size(); }

}  // namespace

Optimizer::Config optimizer_config(const TrainConfig& c, Device device) {
  Optimizer::Config o;
  o.lr = c.peak();
  o.warmup = c.warmup;
  o.steps = c.steps;
  o.schedule = c.schedule;
  o.lr_floor = c.lr_floor;
  o.decay_steps = c.steps_of_decay();
  o.decay_from = c.first_of_decay();
  o.beta1 = c.beta1;
  o.beta2 = c.beta2;
  o.epsilon = c.epsilon;
  o.weight_decay = c.weight_decay;
  o.clip = c.clip;
  o.ema = c.ema;
  o.kind = c.optimizer;
  o.tensor_clip = c.tensor_clip;
  o.decay_rate = c.decay_rate;
  o.clip_threshold = c.clip_threshold;
  o.scale_parameter = c.scale_parameter;
  o.dynamic_loss_scale = resolved(c.precision, device) == Precision::fp16;
  return o;
}

void enter_stage(Model& model, const Stage* stage) {
  auto* windows = dynamic_cast<SetsWindows*>(&model);
  const bool given = stage != nullptr && !stage->window.empty();
  if (given && windows == nullptr) throw user_error("train.stages sets a window, but this model has none");
  if (windows != nullptr) windows->set_windows(given ? stage->window : std::vector<std::int64_t>{});
}

StepWork::StepWork(Model& model, const TrainConfig& config, TrainingState& state, const RankLinks& links,
                   const Queue& queue)
    : model_(model),
      config_(config),
      state_(state),
      rank_(links.rank()),
      all_(links.all()),
      optimizer_(optimizer_config(config, state.sizes().device), state.optimizer,
                 updated_ranges(model.parameters(), config.parallel, rank_, ranks_of(links)),
                 optimizer_parts(model.parameters(), optimizer_config(config, state.sizes().device))) {
  if (all_ == nullptr) return;
  const GradientExchange::Way way{config.parallel.shard, links.overlapped()};
  exchange_ = std::make_unique<GradientExchange>(model.parameters(), state, *all_, queue, way);
}

// By their sum over the global batch, before any of them is used. So neither micro-batches nor ranks change a weight.
void StepWork::divide_weights(Context& ctx, const Batch& batch) {
  if (!batch.weights.given()) return;
  LONGSTRIDE_CHECK(config_.parallel.sequence_ranks == 1, "weights on {} ranks per sequence",
                   config_.parallel.sequence_ranks);
  ops::fill_zero(ctx, state_.weight);
  ops::sum(ctx, batch.weights, state_.weight);
  if (all_ != nullptr && !ctx.planning()) all_->all_reduce_sum(state_.weight, ctx.launch.stream);
  ops::run(ctx, kernels::DivideArgs{batch.weights, state_.weight});
}

void StepWork::run(Context& ctx, const StepShape& shape, std::int64_t rows) {
  const Batching batching = divide_batch(shape, config_.parallel, all_ == nullptr ? 1 : all_->size());
  const Batch batch = state_.batch_of(shape);
  const double scale = 1.0 / state_.divisor(shape);
  ops::fill_zero(ctx, state_.gradients);
  ops::fill_zero(ctx, state_.sums);
  divide_weights(ctx, batch);
  if (state_.states.given()) ops::begin_states(ctx, model_.states(), state_.states, batch.starts);
  const Tensor losses = state_.losses_of(shape, batching.micro * shape.sequences);
  for (std::int64_t begin = 0; begin < rows; begin += batching.micro) {
    const std::int64_t row = batching.group_of(rank_) * batching.per_rank + begin, end = begin + batching.micro;
    ctx.first_row = row * shape.sequences * batching.sequence_ranks + batching.index_of(rank_);
    if (state_.states.given()) ctx.state = state_.states.slice(begin, end);
    ctx.auxiliary = {state_.auxiliary, batching.share(shape.rows), rank_ == 0 && begin == 0};
    if (exchange_ && end == rows) exchange_->begin(ctx);
    model_.loss_and_gradients(ctx, batch.slice(begin, end).cut(shape.sequences), scale, losses);
    ops::sum(ctx, losses, state_.nats);
  }
  ctx.watcher = nullptr;
  ctx.state = {};
  ctx.auxiliary = {};
  ops::keep_states(ctx, state_.states);
  if (exchange_)
    exchange_->finish(optimizer_);
  else
    optimizer_.measure(ctx, state_.gradients, model_.parameters().buckets());
  optimizer_.update(ctx, state_.masters, state_.gradients, sharded() ? Tensor{} : state_.low_precision);
  if (sharded()) exchange_->gather_masters(ctx);
}

void StepWork::exchange(Context& ctx) {
  exchange_->begin(ctx);
  ctx.watcher = nullptr;
  exchange_->finish(optimizer_);
  if (sharded()) exchange_->gather_masters(ctx);
}

}  // namespace longstride
