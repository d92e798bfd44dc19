#include "framework/train/step/training_step.h"

#include <algorithm>
#include <cstring>
#include <exception>
#include <utility>

#include "framework/ops/basic.h"
#include "framework/train/step/precision.h"

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
      state_(model, config, plan_, comm.size()),
      pieces_(updated_pieces(model.parameters(), config, comm.rank(), comm.size())),
      optimizer_(optimizer_config(config, device), state_.optimizer, pieces_,
                 orthogonalised_matrices(model.parameters(), config)),
      exceptions_(std::uncaught_exceptions()) {
  LONGSTRIDE_CHECK(config.stages.empty() || batching_.context == 1, "stages with ranks that share sequences");
  if (device == Device::cuda) {
    gpu_ = std::make_unique<Gpu>(static_cast<std::size_t>(staging_bytes(state_.tokens.count())));
    ctx_.launch.stream = gpu_->stream.handle();
    ctx_.launch.workspace = state_.workspace.data();
    ctx_.launch.workspace_bytes = state_.workspace.bytes();
  }
  ctx_.device = device;
  ctx_.arena = &state_.arena();
  ctx_.compute = plan_.compute;
  ctx_.narrow_stream = narrow_stream(config, device);
  ctx_.seed = config.seed;
  ctx_.step = state_.step.as<const std::int64_t>();
  if (optimizer_.config().dynamic_loss_scale) ctx_.loss_scale = &optimizer_.scalars()->loss_scale;
  if (exchanges(config, comm.size())) connect();
}

// An exception on its way up: what this rank has put on its GPU may wait for others that will never come.
TrainingStep::~TrainingStep() {
  comm_.set_error_source(nullptr);
  if (std::uncaught_exceptions() <= exceptions_ || !gpu_) return;
  gpu_->graph.discard();
  abort_exchange();
}

void TrainingStep::connect() {
  connect_group();
  const Device device = plan_.device;
  ranks_.all = make_collectives(comm_, device);
  const GradientExchange::Way way{config_.parallel.shard, overlaps(config_.parallel, comm_, device)};
  ranks_.gradients =
      std::make_unique<GradientExchange>(model_.parameters(), state_, *ranks_.all, gpu_ ? &gpu_->stream : nullptr, way);
  comm_.set_error_source([this] {
    try {
      for (Collectives* group : {ranks_.all.get(), ranks_.near_exchange.get()})
        if (group != nullptr) group->check();
    } catch (const CommunicationError& error) {
      return std::string(error.what());
    }
    return std::string();
  });
}

// The ranks that share this one's sequences.
void TrainingStep::connect_group() {
  if (batching_.context == 1) return;
  ranks_.near = comm_.split(batching_.group_of(comm_.rank()));
  ranks_.near_exchange = make_collectives(*ranks_.near, plan_.device);
  ranks_.group =
      std::make_unique<RankGroup>(ranks_.near_exchange.get(), batching_.index_of(comm_.rank()), batching_.context);
  ctx_.group = ranks_.group.get();
}

void TrainingStep::abort_exchange() const {
  for (Collectives* group : {ranks_.all.get(), ranks_.near_exchange.get()})
    if (group != nullptr) group->abort();
}

TrainingTensors TrainingStep::tensors() const {
  TrainingTensors all{model_.parameters(), state_.masters, state_.optimizer.m, state_.optimizer.v,
                      state_.optimizer.ema};
  if (sharded() && comm_.size() > 1)
    for (const Piece& piece : pieces_) all.moment_ranges.push_back({piece.begin, piece.count});
  return all;
}

TrainingStep::HostCopy TrainingStep::host_copy() {
  const ParameterSet& parameters = model_.parameters();
  if (!gpu_ && !sharded())
    return {std::nullopt, {parameters, state_.masters, state_.optimizer.m, state_.optimizer.v, state_.optimizer.ema}};
  const std::size_t flat = Arena::rounded(state_.masters.bytes());
  HostCopy copy{std::nullopt, {parameters, {}, {}, {}, {}}};
  std::byte* next = copy.memory.emplace(4 * flat).data();
  const auto like = [&](const Tensor& on_device) {
    if (!on_device.given()) return Tensor{};
    const Tensor t(next, on_device.dtype(), state_.masters.shape());
    next += flat;
    return t;
  };
  copy.tensors.masters = like(state_.masters);
  copy.tensors.m = like(state_.optimizer.m);
  copy.tensors.v = like(state_.optimizer.v);
  copy.tensors.ema = like(state_.optimizer.ema);
  return copy;
}

// f(state of this rank's optimizer, the same elements of a flat buffer of the host), a piece at a time.
template <class F>
void TrainingStep::for_each_piece(const HostCopy& copy, F&& f) const {
  const std::pair<Tensor, Tensor> both[] = {{state_.optimizer.m, copy.tensors.m},
                                            {state_.optimizer.v, copy.tensors.v},
                                            {state_.optimizer.ema, copy.tensors.ema}};
  for (const auto& [own, flat] : both) {
    std::int64_t at = 0;
    for (const Piece& piece : pieces_) {
      if (own.given() && piece.count > 0)
        f(own.slice(0, at, at + piece.count), flat.slice(0, piece.begin, piece.begin + piece.count));
      at += piece.count;
    }
  }
}

void TrainingStep::download(HostCopy& copy) {
  if (!copy.memory) return;
  const auto fetch = [&](const Tensor& from, const Tensor& to) {
    if (gpu_)
      copy_to_host(to.data(), from.data(), from.bytes(), gpu_->stream.handle());
    else
      std::memcpy(to.data(), from.data(), from.bytes());
  };
  fetch(state_.masters, copy.tensors.masters);
  for_each_piece(copy, fetch);
  if (gpu_) synchronize(gpu_->stream.handle());
  if (!sharded()) return;
  for (const Tensor& flat : {copy.tensors.m, copy.tensors.v, copy.tensors.ema})
    for (const Bucket& b : model_.parameters().buckets())
      if (flat.given())
        comm_.all_gather(flat.slice(0, b.begin, b.begin + b.count).data(),
                         b.count / comm_.size() * static_cast<std::int64_t>(sizeof(float)));
}

// The narrow copy of the weights is made anew: it is the masters, rounded.
void TrainingStep::upload(HostCopy& copy) {
  if (!copy.memory) return;
  const auto send = [&](const Tensor& to, const Tensor& from) {
    if (gpu_)
      copy_to_device(to.data(), from.data(), to.bytes(), gpu_->stream.handle());
    else
      std::memcpy(to.data(), from.data(), to.bytes());
  };
  send(state_.masters, copy.tensors.masters);
  for_each_piece(copy, send);
  if (state_.low.given()) ops::copy(ctx_, state_.masters, state_.low);
  if (gpu_) synchronize(gpu_->stream.handle());
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

// A row is contiguous, and every stage has as many positions in all, so only views change, and attention.
void TrainingStep::enter_stage() {
  const std::int64_t sequences = model_.context() / config_.context_at(step_, model_.context());
  if (sequences == sequences_) return;
  sequences_ = sequences;
  if (!gpu_) return;
  synchronize(gpu_->stream.handle());  // the old graph may be running
  gpu_->graph.discard();
  gpu_->warm = false;
}

void TrainingStep::work() {
  const double scale = 1.0 / static_cast<double>(config_.global_batch * model_.context());
  ops::fill_zero(ctx_, state_.gradients);
  ops::fill_zero(ctx_, state_.nats);
  const auto cut = [&](const Tensor& rows) {
    return rows.reshape({rows.size(0) * sequences_, rows.size(1) / sequences_});
  };
  for (std::int64_t begin = 0; begin < batching_.per_rank; begin += batching_.micro) {
    const std::int64_t row = batching_.group_of(comm_.rank()) * batching_.per_rank + begin;
    ctx_.first_row = row * sequences_ * batching_.context + batching_.index_of(comm_.rank());
    if (ranks_.gradients && begin + batching_.micro == batching_.per_rank) ranks_.gradients->begin(ctx_);
    model_.loss_and_gradients(ctx_, cut(state_.tokens.slice(0, begin, begin + batching_.micro)), scale,
                              cut(state_.losses));
    ops::sum(ctx_, state_.losses, state_.nats);
  }
  ctx_.watcher = nullptr;
  if (ranks_.gradients)
    ranks_.gradients->finish(optimizer_);
  else
    optimizer_.measure(ctx_, state_.gradients, pieces_of(model_.parameters(), 0, 1));
  optimizer_.update(ctx_, state_.masters, state_.gradients, sharded() ? Tensor{} : state_.low);
  if (sharded()) ranks_.gradients->gather_masters(ctx_);
}

void TrainingStep::exchange_only(StepTimer* timer) {
  if (timer != nullptr) timer->begin.record(gpu_->stream);
  ranks_.gradients->begin(ctx_);
  ctx_.watcher = nullptr;
  ranks_.gradients->finish(optimizer_);
  if (sharded()) ranks_.gradients->gather_masters(ctx_);
  if (timer != nullptr) timer->end.record(gpu_->stream);
}

void TrainingStep::run(const std::uint8_t* rows, StepTimer* timer) {
  stage(rows);
  enter_stage();
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
