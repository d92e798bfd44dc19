// One optimizer step, without the loop, files and metrics; the trainer and `bench step` share it.
//
// On a GPU the host only copies the step's rows into pinned memory and puts one copy and one graph on the stream. It
// waits for the GPU only when it is two steps ahead or when a report is requested. The step's number, the learning
// rate, the loss scale and whether the gradient is finite are in device memory. The first step of a process runs kernel
// by kernel, so that kernels are loaded; the second is captured as a graph, which is replayed from then on. Both give
// the same bits. Before the first step a rehearsal on random numbers chooses the fastest algorithms for matrix products
// among those that give equal bits. A stage (TrainConfig::stages) starts like a process: kernel by kernel, then
// captured again.
#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "framework/comm/communicator.h"
#include "framework/train/checkpoint/checkpoint.h"
#include "framework/train/step/host_tensors.h"
#include "framework/train/step/loss_mean.h"
#include "framework/train/step/staging.h"
#include "framework/train/step/step_work.h"

namespace longstride {

// The results of the last step.
struct StepReport {
  double loss = 0;                // mean of the global batch, nats: per byte, where every byte is asked
  std::vector<double> auxiliary;  // losses, in the order of Model::auxiliary_losses
  kernels::OptimizerScalars scalars;
};

// Writes a run's first weights into the (host) masters; every rank calls it.
using FirstWeights = std::function<void(ParameterSet&)>;

// Measures what one step puts on the stream.
struct StepTimer {
  Event begin, end;
};

class TrainingStep {
 public:
  TrainingStep(Model& model, const TrainConfig& config, Communicator& comm, Device device);
  ~TrainingStep();
  TrainingStep(const TrainingStep&) = delete;
  TrainingStep& operator=(const TrainingStep&) = delete;

  // Starts a new run, with random weights unless others are given, or resumes from the newest whole checkpoint in
  // `run`.
  void start(const FirstWeights& weights = {});
  CheckpointState resume(const std::string& run);

  // One step on this rank's rows of the global batch, in TrainingState::layout_of(shape_at(step())). Reads the rows
  // before it returns; on a GPU the step itself may still be running.
  void run(const std::uint8_t* rows, StepTimer* timer = nullptr);
  std::int64_t step() const { return step_; }  // steps taken
  StepReport report();                         // waits for the last step
  // Bytes trained on so far; those before the run was resumed are the checkpoint's, whatever the batches were.
  std::int64_t tokens_seen() const { return tokens_before(step_) + tokens_of_other_batches_; }
  // The rows of a 0-based step, and this rank's part of them.
  StepShape shape_at(std::int64_t step) const { return longstride::shape_at(config_, step, model_.context()); }
  std::int64_t first_row_of(const StepShape& shape) const;
  // Mean loss of the steps since the last call, or since the process began. Waits for the last step.
  double take_mean_loss();
  // Everything in a checkpoint's state except the recipe.
  void describe(const StepReport& report, CheckpointState& state) const;

  // For evaluation between steps, in the same memory.
  Context& context() { return ctx_; }
  const Queue& queue() const { return stream_; }
  // The content of a checkpoint, in place; with a sharded optimizer, only this rank's part.
  TrainingTensors tensors() const { return state_.saved(model_, config_, comm_.rank()); }
  // Calls `f` with the same in host memory. With a sharded optimizer every rank must call it, and gets all parts.
  template <class F>
  void with_host_tensors(F&& f) {
    HostTensors host = host_tensors();
    host.fetch(stream_, comm_);
    f(host.tensors());
  }

  const Batching& batching() const { return batching_; }
  const MemoryPlan& plan() const { return plan_; }
  TrainingState& state() { return state_; }
  // Only exchanges the gradients as they are, which makes them useless: for measurements.
  void exchange_only(StepTimer* timer);

 private:
  HostTensors host_tensors() const { return {state_, tensors()}; }
  void rehearse();
  void enter_stage();

  Model& model_;
  std::int64_t tokens_before(std::int64_t step) const { return positions_before(config_, step, model_.context()); }

  const TrainConfig config_;
  Communicator& comm_;
  const Batching batching_;
  const MemoryPlan plan_;
  // Members are destroyed in reverse order: memory after the graphs and streams that use it.
  TrainingState state_;
  const RankLinks links_;
  Staging staging_;
  HostSide scalars_, sums_;
  LossMean loss_mean_;
  Stream stream_;
  StepWork work_;
  Graph graph_;
  Context ctx_;
  std::int64_t step_ = 0, tokens_of_other_batches_ = 0;
  const Stage* stage_ = nullptr;   // the last step's
  StepShape shape_;                // likewise
  double summed_losses_ = 0;       // number of losses since take_mean_loss()
  std::int64_t summed_steps_ = 0;  // likewise
  bool warm_ = false;              // a step of this stage has run kernel by kernel
  const int exceptions_;
};

}  // namespace longstride
