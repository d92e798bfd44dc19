#include "framework/train/step/training_step.h"

#include <algorithm>
#include <cstring>
#include <exception>

#include "framework/train/run/file_work.h"

namespace longstride {
namespace {

MemoryPlan plan_that_fits(Model& model, const TrainConfig& config, int ranks, Device device) {
  const MemoryPlan plan = plan_memory(model, config, ranks, device);
  if (const auto gpu = gpu_info(device))
    check_fits(model, config, ranks, plan, {static_cast<std::int64_t>(gpu->free_bytes), "free"});
  return plan;
}

}  // namespace

TrainingStep::TrainingStep(Model& model, const TrainConfig& config, Communicator& comm, Device device)
    : model_(model),
      config_(config),
      comm_(comm),
      batching_(divide_batch(config, comm.size())),
      plan_(plan_that_fits(model, config, comm.size(), device)),
      state_(model, config, comm.size(), device, Block(device, static_cast<std::size_t>(plan_.block()))),
      links_(comm, config.parallel, batching_, device),
      staging_(device, state_.input),
      scalars_(device, state_.optimizer.scalars.bytes()),
      sums_(device, state_.sums.bytes()),
      loss_mean_(device, state_.nats),
      stream_(device),
      work_(model, config_, state_, links_, stream_),
      ctx_(state_.context(config, stream_)),
      shape_(shape_of(config_, nullptr, model.context())),
      exceptions_(std::uncaught_exceptions()) {
  for (const StageSteps& steps : stretches(config_, model.context()))
    LONGSTRIDE_CHECK(
        model.states().empty() || (steps.shape.rows == config.global_batch && steps.shape.sequences == 1 &&
                                   steps.shape.context == model.context() && batching_.sequence_ranks == 1),
        "rows that remember, of other stages or on {} ranks", batching_.sequence_ranks);
  LONGSTRIDE_CHECK(config.stages.empty() || batching_.sequence_ranks == 1, "stages with ranks that share sequences");
  ctx_.group = links_.group();
  const Optimizer& optimizer = work_.optimizer();
  if (optimizer.config().dynamic_loss_scale) ctx_.loss_scale = &optimizer.scalars()->loss_scale;
  if (links_.all() == nullptr) return;
  comm_.set_error_source([this] {
    try {
      links_.check();
    } catch (const CommunicationError& error) {
      return std::string(error.what());
    }
    return std::string();
  });
}

// If an exception is propagating, this rank's GPU may be waiting for exchanges with ranks that will never take part.
TrainingStep::~TrainingStep() {
  comm_.set_error_source(nullptr);
  if (std::uncaught_exceptions() <= exceptions_ || stream_.immediate()) return;
  graph_.discard();
  links_.abort();
}

// A forward and a backward pass of every stage before the memory holds anything; what they leave there is overwritten.
// Stages that read the same rows have products of the same shapes.
void TrainingStep::rehearse() {
  if (stream_.immediate()) return;
  stream_.zero(state_.batch.tokens.data(), state_.most_batch_bytes());
  model_.parameters().bind(state_.masters, state_.gradients, state_.low_precision);
  std::vector<std::int64_t> done;
  const std::vector<StageSteps> all = stretches(config_, model_.context());
  for (auto steps = all.rbegin(); steps != all.rend(); ++steps) {
    StepShape whole = steps->shape;
    whole.sequences = 1;
    const std::int64_t micro = divide_batch(whole, config_.parallel, comm_.size()).micro;
    if (std::find(done.begin(), done.end(), micro * whole.context) != done.end()) continue;
    done.push_back(micro * whole.context);
    longstride::enter_stage(model_, steps->stage);
    Context rehearsal = ctx_;
    rehearsal.launch.rehearsal = true;
    if (state_.states.given()) rehearsal.state = state_.states.slice(0, micro);
    rehearsal.auxiliary.sums = state_.auxiliary;
    model_.loss_and_gradients(rehearsal, state_.batch_of(whole).slice(0, micro), 1.0, state_.losses_of(whole, micro));
    stream_.synchronize();
  }
  longstride::enter_stage(model_, stage_);
}

void TrainingStep::start(const FirstWeights& weights) {
  rehearse();
  HostTensors host = host_tensors();
  host.zero();
  model_.parameters().bind(host.tensors().masters, state_.gradients);
  model_.parameters().initialise(config_.seed);
  if (weights) weights(model_.parameters());
  model_.parameters().bind(state_.masters, state_.gradients, state_.low_precision);
  host.send(ctx_);
  work_.optimizer().start(ctx_, state_.masters);
  step_ = 0;
}

CheckpointState TrainingStep::resume(const std::string& run) {
  rehearse();
  HostTensors host = host_tensors();
  host.zero();
  const CheckpointState found = [&] {
    const FileWork work(run);
    return resume_from_checkpoint(comm_, run, host.tensors());
  }();
  host.send(ctx_);
  Optimizer& optimizer = work_.optimizer();
  const double first = static_cast<double>(kernels::LossScale::first);
  const bool scaled = optimizer.config().dynamic_loss_scale;
  optimizer.resume(ctx_, scaled ? static_cast<float>(found.loss_scale.value_or(first)) : 1.0f, found.good_steps,
                   found.skipped);
  step_ = found.step;
  tokens_of_other_batches_ = found.tokens_seen - tokens_before(step_);
  return found;
}

// Other views of the same memory, other windows, and another learning rate, all of which a captured kernel has as
// arguments.
void TrainingStep::enter_stage() {
  const Stage* stage = stage_at(config_, step_);
  const double peak = config_.peak_at(step_);
  if (stage == stage_ && peak == work_.optimizer().config().lr) return;
  stage_ = stage;
  shape_ = shape_at(step_);
  longstride::enter_stage(model_, stage);
  work_.optimizer().set_peak(peak);
  stream_.synchronize();  // the old graph may still be running
  graph_.discard();
  warm_ = false;
}

void TrainingStep::run(const std::uint8_t* rows, StepTimer* timer) {
  enter_stage();
  staging_.send(stream_, step_, rows, state_.layout_of(shape_).bytes());
  if (timer != nullptr) timer->begin.record(stream_);
  const auto work = [&] { work_.run(ctx_, shape_, divide_batch(shape_, config_.parallel, comm_.size()).per_rank); };
  if (warm_ && config_.graph && !stream_.immediate() && ctx_.launch.meter == nullptr) {
    if (!graph_.captured()) graph_.capture(stream_, work);
    graph_.replay(stream_);
  } else {
    work();
    warm_ = true;
  }
  if (timer != nullptr) timer->end.record(stream_);
  loss_mean_.add(stream_);
  summed_losses_ += state_.divisor(shape_);
  ++summed_steps_;
  ++step_;
}

void TrainingStep::exchange_only(StepTimer* timer) {
  if (timer != nullptr) timer->begin.record(stream_);
  work_.exchange(ctx_);
  if (timer != nullptr) timer->end.record(stream_);
}

void TrainingStep::describe(const StepReport& report, CheckpointState& state) const {
  state.step = step_;
  state.seed = config_.seed;
  state.tokens_seen = tokens_seen();
  state.global_batch = shape_.rows;
  state.world_size = comm_.size();
  state.skipped = report.scalars.skipped;
  state.loss = report.loss;
  if (!work_.optimizer().config().dynamic_loss_scale) return;
  state.loss_scale = static_cast<double>(report.scalars.loss_scale);
  state.good_steps = report.scalars.good_steps;
}

StepReport TrainingStep::report() {
  StepReport report;
  std::vector<double> sums(static_cast<std::size_t>(state_.sums.count()));
  const std::byte* const scalars = scalars_.fetch(stream_, state_.optimizer.scalars);
  const std::byte* const found = sums_.fetch(stream_, state_.sums);
  stream_.synchronize();
  std::memcpy(&report.scalars, scalars, sizeof(report.scalars));
  std::memcpy(sums.data(), found, state_.sums.bytes());
  report.loss = sums.front() / state_.divisor(shape_);
  report.auxiliary.assign(sums.begin() + 1, sums.end());
  return report;
}

double TrainingStep::take_mean_loss() {
  const double mean = loss_mean_.take(stream_);
  if (summed_steps_ == 0) return mean;  // 0: nothing has been summed
  const double per_step = summed_losses_ / static_cast<double>(summed_steps_);
  summed_losses_ = 0;
  summed_steps_ = 0;
  return mean / per_step;
}

std::int64_t TrainingStep::first_row_of(const StepShape& shape) const {
  const Batching batching = divide_batch(shape, config_.parallel, comm_.size());
  return batching.group_of(comm_.rank()) * batching.per_rank;
}

}  // namespace longstride
