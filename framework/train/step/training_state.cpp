#include "framework/train/step/training_state.h"

#include <algorithm>
#include <utility>

#include "framework/train/ranks/rank_links.h"
#include "framework/train/step/precision.h"
#include "framework/train/step/step_work.h"

namespace longstride {

std::vector<FlatRange> updated_ranges(const ParameterSet& parameters, const ParallelConfig& config, int rank,
                                      int ranks) {
  return config.shard ? parameters.pieces(rank, ranks) : parameters.everything();
}

TrainingState::TrainingState(Model& model, const TrainConfig& config, int ranks, Device device, Block block)
    : block_(std::move(block)),
      fields_(model.fields()),
      parallel_(config.parallel),
      ranks_(ranks),
      layout_(fields_, divide_batch(config, ranks).per_rank, model.context()) {
  const Batching batching = divide_batch(config, ranks);
  sizes_.device = device;
  sizes_.compute = compute_type(config.precision, device);
  const Dtype travelling = gradient_type(config, device);
  ParameterSet& parameters = model.parameters();
  parameters.lay_out(ranks, config.parallel.bucket);
  const Shape flat = {parameters.flat_size()};
  masters = take(&MemoryPlan::parameters, flat, Dtype::f32);
  if (sizes_.compute != Dtype::f32) low_precision = take(&MemoryPlan::parameters, flat, sizes_.compute);
  gradients = take(&MemoryPlan::gradients, flat, Dtype::f32);
  if (exchanges(config.parallel, ranks) && travelling != Dtype::f32)
    wire = take(&MemoryPlan::exchange, flat, travelling);
  Shape updated = {0};
  for (const FlatRange& range : updated_ranges(parameters, config.parallel, 0, ranks)) updated.size[0] += range.count;
  take_moments(parameters, optimizer_config(config, device), updated);
  if (!model.states().empty()) {
    const StateTypes types{sizes_.compute, Dtype::f32};
    const Shape remembered = {batching.per_rank * model.states().row_bytes(types)};
    const Tensor now = take(&MemoryPlan::states, remembered, Dtype::u8);
    states = RowStates(batching.per_rank, types, now, take(&MemoryPlan::states, remembered, Dtype::u8));
  }
  const std::size_t begin = taken_;
  step = take(&MemoryPlan::batch, {1}, Dtype::i64);
  std::int64_t most_losses = 0;
  for (const StageSteps& steps : stretches(config, model.context())) {
    const std::int64_t micro = divide_batch(steps.shape, parallel_, ranks).micro;
    most_losses = std::max(most_losses, micro * steps.shape.sequences * losses_of_sequence(steps.shape));
    most_batch_bytes_ = std::max(most_batch_bytes_, layout_of(steps.shape).bytes());
  }
  batch = layout_.at(take(&MemoryPlan::batch, {static_cast<std::int64_t>(most_batch_bytes_)}, Dtype::u8).data());
  input = Tensor(step.data(), Dtype::u8, {static_cast<std::int64_t>(taken_ - begin)});
  if (batch.weights.given()) weight = take(&MemoryPlan::batch, {1}, Dtype::f64);
  const std::int64_t auxiliaries = std::ssize(model.auxiliary_losses());
  sums = take(&MemoryPlan::batch, {1 + auxiliaries}, Dtype::f64);
  nats = sums.slice(0, 0, 1);
  if (auxiliaries > 0) auxiliary = sums.slice(0, 1, 1 + auxiliaries);
  losses = take(&MemoryPlan::batch, {most_losses}, Dtype::f32);
  const std::size_t zeroed = taken_;
  if (const auto bytes = static_cast<std::int64_t>(library_workspace_bytes(device)); bytes > 0)
    workspace = take(&MemoryPlan::libraries, {bytes}, Dtype::u8);
  parameters.bind(masters, gradients, low_precision);
  if (block_.data() == nullptr) return;
  const Queue queue(device);
  queue.zero(block_.data(), zeroed);
  queue.synchronize();
  LONGSTRIDE_CHECK(taken_ <= block_.bytes(), "a block of {} bytes for {}", block_.bytes(), taken_);
  arena_ = Arena(block_.data() + taken_, block_.bytes() - taken_);
}

BatchLayout TrainingState::layout_of(const StepShape& shape) const {
  return {fields_, divide_batch(shape, parallel_, ranks_).per_rank, shape.context};
}

std::int64_t TrainingState::losses_of_sequence(const StepShape& shape) const {
  return fields_.losses(shape.sequence() / parallel_.sequence_ranks);
}

Tensor TrainingState::losses_of(const StepShape& shape, std::int64_t sequences) const {
  const std::int64_t each = losses_of_sequence(shape);
  return losses.slice(0, 0, sequences * each).reshape({sequences, each});
}

double TrainingState::divisor(const StepShape& shape) const {
  if (batch.weights.given()) return 1;
  return static_cast<double>(shape.rows * shape.sequences * fields_.losses(shape.sequence()));
}

void TrainingState::take_moments(const ParameterSet& parameters, const Optimizer::Config& config,
                                 const Shape& updated) {
  const OptimizerParts parts = optimizer_parts(parameters, config);
  if (config.first_moments()) optimizer.m = take(&MemoryPlan::optimizer, updated, Dtype::f32);
  if (config.second_moments()) optimizer.v = take(&MemoryPlan::optimizer, updated, Dtype::f32);
  if (config.kind == OptimizerKind::adafactor) {
    factors = factor_layout(parameters);
    optimizer.factors = take(&MemoryPlan::optimizer, {factors.flat_size()}, Dtype::f32);
  }
  if (!parts.tensors.empty())
    optimizer.tensor_squares = take(&MemoryPlan::optimizer, {std::ssize(parts.tensors)}, Dtype::f64);
  optimizer.scalars = take(&MemoryPlan::optimizer, {Optimizer::scalars_bytes}, Dtype::u8);
  if (config.ema > 0) optimizer.ema = take(&MemoryPlan::average, updated, Dtype::f32);
}

Tensor TrainingState::take(std::int64_t MemoryPlan::*purpose, const Shape& shape, Dtype dtype) {
  const Tensor t(block_.data() == nullptr ? nullptr : block_.data() + taken_, dtype, shape);
  const std::size_t bytes = Arena::rounded(t.bytes());
  sizes_.*purpose += static_cast<std::int64_t>(bytes);
  taken_ += bytes;
  return t;
}

TrainingTensors TrainingState::saved(Model& model, const TrainConfig& config, int rank) const {
  const ParameterSet& parameters = model.parameters();
  TrainingTensors all{parameters, masters, optimizer.m, optimizer.v, optimizer.ema};
  if (parallel_.shard && ranks_ > 1) all.moment_ranges = updated_ranges(parameters, parallel_, rank, ranks_);
  all.factors = optimizer.factors;
  all.factor_layout = &factors;
  if (!states.given()) return all;
  const Batching batching = divide_batch(config, ranks_);
  all.states = states.all_now();
  all.state_layout = {&model.states(), states, batching.group_of(rank) * batching.per_rank, config.global_batch};
  return all;
}

Context TrainingState::context(const TrainConfig& config, const Queue& queue) {
  Context ctx;
  ctx.device = sizes_.device;
  ctx.arena = &arena_;
  ctx.launch.stream = queue.stream();
  ctx.launch.workspace = workspace.data();
  ctx.launch.workspace_bytes = workspace.bytes();
  ctx.compute = sizes_.compute;
  ctx.low_precision_residual = low_precision_residual(config, sizes_.device);
  ctx.fp8_products = fp8_products(config.precision, sizes_.device);
  ctx.seed = config.seed;
  static constexpr std::int64_t planned_step = 0;  // nothing is read while planning, but a step has dropout
  ctx.step = block_.data() == nullptr ? &planned_step : step.as<const std::int64_t>();
  return ctx;
}

}  // namespace longstride
