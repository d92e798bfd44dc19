#include "framework/train/training_step.h"

#include <algorithm>
#include <cstring>

#include "framework/ops/basic.h"

namespace longstride {
namespace {

MemoryPlan plan_that_fits(Model& model, const TrainConfig& config, int ranks, Device device) {
  const MemoryPlan plan = plan_memory(model, config, ranks, device);
  if (device == Device::cuda)
    check_fits(model, config, ranks, plan, static_cast<std::int64_t>(device_info().free_bytes));
  return plan;
}

}  // namespace

TrainingStep::TrainingStep(Model& model, const TrainConfig& config, Communicator& comm, Device device)
    : model_(model),
      config_(config),
      comm_(comm),
      batching_(divide_batch(config, comm.size())),
      plan_(plan_that_fits(model, config, comm.size(), device)),
      state_(model, plan_, batching_),
      optimizer_(optimizer_config(config, device), state_.optimizer, model.parameters().decayed_size()) {
  if (device == Device::cuda) {
    LONGSTRIDE_CHECK(comm.size() == 1, "{} ranks train on GPUs", comm.size());
    gpu_ = std::make_unique<Gpu>(static_cast<std::size_t>(staging_bytes(state_.tokens.count())));
    ctx_.launch.stream = gpu_->stream.handle();
    ctx_.launch.workspace = state_.workspace.data();
    ctx_.launch.workspace_bytes = state_.workspace.bytes();
  }
  ctx_.device = device;
  ctx_.arena = &state_.arena();
  ctx_.compute = plan_.compute;
  ctx_.seed = config.seed;
  ctx_.step = state_.step.as<const std::int64_t>();
  if (optimizer_.config().dynamic_loss_scale) ctx_.loss_scale = &optimizer_.scalars()->loss_scale;
}

TrainingStep::HostCopy TrainingStep::host_copy() {
  const ParameterSet& parameters = model_.parameters();
  if (!gpu_)
    return {std::nullopt, {parameters, state_.masters, state_.optimizer.m, state_.optimizer.v, state_.optimizer.ema}};
  const std::size_t flat = Arena::rounded(state_.masters.bytes());
  HostCopy copy{std::nullopt, {parameters, {}, {}, {}, {}}};
  std::byte* next = copy.memory.emplace(4 * flat).data();
  const auto like = [&](const Tensor& on_device) {
    if (!on_device.given()) return Tensor{};
    const Tensor t(next, on_device.dtype(), on_device.shape());
    next += flat;
    return t;
  };
  copy.tensors.masters = like(state_.masters);
  copy.tensors.m = like(state_.optimizer.m);
  copy.tensors.v = like(state_.optimizer.v);
  copy.tensors.ema = like(state_.optimizer.ema);
  return copy;
}

void TrainingStep::download(HostCopy& copy) {
  if (!gpu_) return;
  void* stream = gpu_->stream.handle();
  const auto fetch = [&](const Tensor& from, const Tensor& to) {
    if (from.given()) copy_to_host(to.data(), from.data(), from.bytes(), stream);
  };
  fetch(state_.masters, copy.tensors.masters);
  fetch(state_.optimizer.m, copy.tensors.m);
  fetch(state_.optimizer.v, copy.tensors.v);
  fetch(state_.optimizer.ema, copy.tensors.ema);
  synchronize(stream);
}

// The narrow copy of the weights is made anew: it is the masters, rounded.
void TrainingStep::upload(HostCopy& copy) {
  if (!gpu_) return;
  void* stream = gpu_->stream.handle();
  const auto send = [&](const Tensor& from, const Tensor& to) {
    if (to.given()) copy_to_device(to.data(), from.data(), to.bytes(), stream);
  };
  send(copy.tensors.masters, state_.masters);
  send(copy.tensors.m, state_.optimizer.m);
  send(copy.tensors.v, state_.optimizer.v);
  send(copy.tensors.ema, state_.optimizer.ema);
  if (state_.low.given()) ops::copy(ctx_, state_.masters, state_.low);
  synchronize(stream);
}

// A forward and a backward pass before there is anything in memory. What it leaves there is overwritten.
void TrainingStep::rehearse() {
  if (!gpu_) return;
  Context rehearsal = ctx_;
  rehearsal.launch.rehearsal = true;
  zero_on_device(state_.tokens.data(), state_.tokens.bytes(), gpu_->stream.handle());
  model_.parameters().bind(state_.masters, state_.gradients, state_.low);
  model_.loss_and_gradients(rehearsal, state_.tokens.slice(0, 0, batching_.micro), 1.0, state_.losses);
  synchronize(gpu_->stream.handle());
}

void TrainingStep::start() {
  rehearse();
  HostCopy copy = host_copy();
  if (copy.memory) std::memset(copy.memory->data(), 0, copy.memory->bytes());
  model_.parameters().bind(copy.tensors.masters, state_.gradients);
  model_.parameters().initialise(config_.seed);
  model_.parameters().bind(state_.masters, state_.gradients, state_.low);
  upload(copy);
  optimizer_.start(ctx_, state_.masters);
  step_ = 0;
}

CheckpointState TrainingStep::resume(const std::string& run) {
  rehearse();
  HostCopy copy = host_copy();
  if (copy.memory) std::memset(copy.memory->data(), 0, copy.memory->bytes());
  const CheckpointState found = resume_from_checkpoint(comm_, run, copy.tensors);
  upload(copy);
  const bool scaled = optimizer_.config().dynamic_loss_scale;
  const double first = static_cast<double>(kernels::LossScale::first);
  optimizer_.resume(ctx_, scaled ? static_cast<float>(found.loss_scale.value_or(first)) : 1.0f, found.good_steps);
  step_ = found.step;
  return found;
}

// The step's number and tokens, to where the kernels read them.
void TrainingStep::stage(const std::uint8_t* rows) {
  const auto fill = [&](std::byte* number) {
    std::memcpy(number, &step_, sizeof(step_));
    std::memcpy(number + TrainingState::step_to_tokens, rows, state_.tokens.bytes());
  };
  auto* const number = state_.step.as<std::byte>();
  if (!gpu_) return fill(number);
  Staging& staging = gpu_->staging[static_cast<std::size_t>(step_ % staging_buffers)];
  staging.copied.wait();
  fill(staging.memory.data());
  copy_to_device(number, staging.memory.data(), staging.memory.bytes(), gpu_->stream.handle());
  staging.copied.record(gpu_->stream);
}

void TrainingStep::work() {
  const double scale = 1.0 / static_cast<double>(config_.global_batch * model_.context());
  ops::fill_zero(ctx_, state_.gradients);
  ops::fill_zero(ctx_, state_.nats);
  for (std::int64_t begin = 0; begin < batching_.per_rank; begin += batching_.micro) {
    ctx_.first_row = comm_.rank() * batching_.per_rank + begin;
    model_.loss_and_gradients(ctx_, state_.tokens.slice(0, begin, begin + batching_.micro), scale, state_.losses);
    ops::sum(ctx_, state_.losses, state_.nats);
  }
  if (!gpu_) {
    comm_.all_reduce_sum(state_.nats.as<double>(), 1);
    comm_.all_reduce_sum(state_.gradients.as<float>(), state_.gradients.count());
  }
  optimizer_.step(ctx_, state_.masters, state_.gradients, state_.low);
}

void TrainingStep::run(const std::uint8_t* rows, StepTimer* timer) {
  stage(rows);
  if (timer != nullptr) timer->begin.record(gpu_->stream);
  if (gpu_ && gpu_->warm && config_.graph && ctx_.launch.meter == nullptr) {
    if (!gpu_->graph.captured()) gpu_->graph.capture(gpu_->stream, [&] { work(); });
    gpu_->graph.replay(gpu_->stream);
  } else {
    work();
    if (gpu_) gpu_->warm = true;
  }
  if (timer != nullptr) timer->end.record(gpu_->stream);
  ++step_;
}

void TrainingStep::describe(const StepReport& report, CheckpointState& state) const {
  state.step = step_;
  state.seed = config_.seed;
  state.tokens_seen = step_ * config_.global_batch * model_.context();
  state.global_batch = config_.global_batch;
  state.world_size = comm_.size();
  state.loss = report.loss;
  if (!optimizer_.config().dynamic_loss_scale) return;
  state.loss_scale = static_cast<double>(report.scalars.loss_scale);
  state.good_steps = report.scalars.good_steps;
}

StepReport TrainingStep::report() {
  StepReport report;
  double nats = 0;
  if (gpu_) {
    void* stream = gpu_->stream.handle();
    std::byte* results = gpu_->results.data();
    copy_to_host(results, state_.optimizer.scalars.data(), sizeof(report.scalars), stream);
    copy_to_host(results + Arena::alignment, state_.nats.data(), sizeof(nats), stream);
    synchronize(stream);
    std::memcpy(&report.scalars, results, sizeof(report.scalars));
    std::memcpy(&nats, results + Arena::alignment, sizeof(nats));
  } else {
    report.scalars = *optimizer_.scalars();
    nats = *state_.nats.as<const double>();
  }
  report.loss = nats / static_cast<double>(config_.global_batch * model_.context());
  return report;
}

}  // namespace longstride
