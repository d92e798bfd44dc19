// One optimizer step without loop, files and metrics: the trainer and `bench step` share it.
//
// On a GPU the host only copies the step's tokens into pinned memory and puts one copy and one graph on the stream: it
// waits for the GPU when it is two steps ahead, and when a report is asked for. What kernels need to know of the step
// (its number, the learning rate, the loss scale, whether the gradient is finite) is in device memory. The first step
// of a process runs kernel by kernel, so that kernels are loaded; the second is captured as a graph and replayed from
// then on. Both give the same bits. Before the first step a rehearsal on random numbers chooses the algorithms of
// matrix products, by time and among those that give equal bits. A stage of growing context (TrainConfig::stages)
// starts like a process: kernel by kernel, then captured anew.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "framework/comm/communicator.h"
#include "framework/train/checkpoint/checkpoint.h"
#include "framework/train/step/host_tensors.h"
#include "framework/train/step/staging.h"
#include "framework/train/step/step_work.h"

namespace longstride {

// What the last step did.
struct StepReport {
  double loss = 0;  // mean nats per byte of the global batch
  kernels::OptimizerScalars scalars;
};

// Around what one step puts on the stream.
struct StepTimer {
  Event begin, end;
};

class TrainingStep {
 public:
  TrainingStep(Model& model, const TrainConfig& config, Communicator& comm, Device device);
  ~TrainingStep();
  TrainingStep(const TrainingStep&) = delete;
  TrainingStep& operator=(const TrainingStep&) = delete;

  // A fresh run, or one that resumes from the newest whole checkpoint in `run`.
  void start();
  CheckpointState resume(const std::string& run);

  // One step on this rank's rows of the global batch, (rows, context) bytes that are read before it returns. On a GPU
  // the step itself continues.
  void run(const std::uint8_t* rows, StepTimer* timer = nullptr);
  std::int64_t step() const { return step_; }  // taken
  StepReport report();                         // waits for the last step
  // All of a checkpoint's state but the recipe.
  void describe(const StepReport& report, CheckpointState& state) const;

  // For evaluation between steps, in the same memory.
  Context& context() { return ctx_; }
  const Queue& queue() const { return stream_; }
  // All that a checkpoint holds, where it is; of a sharded optimizer, this rank's part.
  TrainingTensors tensors() const;
  // The same in the host's memory: `f` is called with it. Where the optimizer is sharded every rank calls it, and gets
  // all.
  template <class F>
  void with_host_tensors(F&& f) {
    HostTensors host = host_tensors();
    host.fetch(stream_, comm_);
    f(host.tensors());
  }

  const Batching& batching() const { return batching_; }
  const MemoryPlan& plan() const { return plan_; }
  TrainingState& state() { return state_; }
  // Only the exchange of the gradients as they are, after which they are of no use: to measure it.
  void exchange_only(StepTimer* timer);

 private:
  HostTensors host_tensors() const { return {model_.parameters(), state_, owned_, work_.sharded()}; }
  void rehearse();
  void enter_stage();

  Model& model_;
  const TrainConfig config_;
  Communicator& comm_;
  const Batching batching_;
  const MemoryPlan plan_;
  // Destroyed in the reverse order: what a graph has captured and what a stream works on go after it.
  TrainingState state_;
  const RankLinks links_;
  Staging staging_;
  HostSide scalars_, nats_;
  Stream stream_;
  StepWork work_;
  Graph graph_;
  Context ctx_;
  const std::vector<FlatRange> owned_;  // ranges that this rank's optimizer updates
  std::int64_t step_ = 0;
  std::int64_t sequences_ = 1;  // that a row of the batch is read as, at this stage
  bool warm_ = false;           // a step of this stage has run kernel by kernel
  const int exceptions_;
};

}  // namespace longstride
