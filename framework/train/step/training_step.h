// One optimizer step, on the CPU or on a GPU, without loop, files and metrics: the trainer and `bench step` share it.
//
// On a GPU the host only copies the step's tokens into pinned memory and puts one copy and one graph on the stream: it
// waits for the GPU when it is two steps ahead, and when somebody asks for a report. Everything that the kernels need
// to know about the step - its number, the learning rate, the loss scale, whether the gradient is finite - is in device
// memory. The first step of a process runs kernel by kernel, so that libraries choose their algorithms and kernels are
// loaded; the second is captured as a graph and replayed from then on. Both give the same bits. Before the first a
// rehearsal on random numbers chooses the algorithms of matrix products, by time and among those that give equal bits.
// A stage of growing context (TrainConfig::stages) begins like a process: kernel by kernel, then captured anew.
#pragma once
#include <array>
#include <cstdint>
#include <memory>
#include <optional>

#include "framework/comm/communicator.h"
#include "framework/train/checkpoint/checkpoint.h"
#include "framework/train/ranks/gradient_exchange.h"
#include "framework/train/ranks/rank_group.h"
#include "framework/train/step/training_state.h"

namespace longstride {

// What the last step did.
struct StepReport {
  double loss = 0;  // mean nats a byte of the global batch
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

  // A fresh run, or one that goes on from the newest whole checkpoint in `run`.
  void start();
  CheckpointState resume(const std::string& run);

  // One step on this rank's rows of the global batch, (rows, context) bytes that are read before it returns. On a GPU
  // the step itself runs on.
  void run(const std::uint8_t* rows, StepTimer* timer = nullptr);
  std::int64_t step() const { return step_; }  // taken
  StepReport report();                         // waits for the last step
  // All of a checkpoint's state but the recipe.
  void describe(const StepReport& report, CheckpointState& state) const;

  // For evaluation between steps, in the same memory.
  Context& context() { return ctx_; }
  // All that a checkpoint holds, where it is; of a sharded optimizer, this rank's part.
  TrainingTensors tensors() const;
  // The same in the host's memory: `f` is called with it. Where the optimizer is sharded every rank calls it, and gets
  // all.
  template <class F>
  void with_host_tensors(F&& f) {
    HostCopy copy = host_copy();
    download(copy);
    f(copy.tensors);
  }

  const Batching& batching() const { return batching_; }
  const MemoryPlan& plan() const { return plan_; }
  TrainingState& state() { return state_; }
  bool sharded() const { return config_.parallel.shard && ranks_.gradients != nullptr; }
  // Only the exchange of the gradients as they are, after which they are of no use: to measure it.
  void exchange_only(StepTimer* timer);
  const Stream* stream() const { return gpu_ ? &gpu_->stream : nullptr; }

 private:
  struct HostCopy {
    std::optional<HostMemory> memory;  // on the CPU there is nothing to copy
    TrainingTensors tensors;
  };
  struct Staging {
    explicit Staging(std::size_t bytes) : memory(bytes) {}
    PinnedMemory memory;  // the step's number and its tokens
    Event copied;
  };
  struct Gpu {
    explicit Gpu(std::size_t bytes) : staging{Staging(bytes), Staging(bytes)}, results(2 * Arena::alignment) {}
    Stream stream;
    std::array<Staging, staging_buffers> staging;
    PinnedMemory results;
    Graph graph;
    bool warm = false;  // a step has run kernel by kernel
  };
  // What several ranks need.
  struct Ranks {
    std::unique_ptr<Collectives> all;
    std::unique_ptr<Communicator> near;  // the ranks that share this one's sequences, when there are any
    std::unique_ptr<Collectives> near_exchange;
    std::unique_ptr<RankGroup> group;
    std::unique_ptr<GradientExchange> gradients;
  };

  void connect();
  void connect_group();
  void abort_exchange() const;  // ends what will never come to an end
  HostCopy host_copy();
  template <class F>
  void for_each_piece(const HostCopy& copy, F&& f) const;
  void download(HostCopy& copy);
  void upload(HostCopy& copy);
  void stage(const std::uint8_t* rows);
  void rehearse();
  void enter_stage();
  void work();  // puts the whole step on the stream, or does it on the CPU

  Model& model_;
  TrainConfig config_;
  Communicator& comm_;
  Batching batching_;
  MemoryPlan plan_;
  TrainingState state_;
  Ranks ranks_;
  std::unique_ptr<Gpu>
      gpu_;  // after the memory that its stream works on and what its graph has captured: it goes first
  Context ctx_;
  std::vector<Piece> pieces_;  // that this rank updates
  Optimizer optimizer_;
  std::int64_t step_ = 0;
  std::int64_t sequences_ = 1;  // that a row of the batch is read as, at this stage
  int exceptions_;
};

}  // namespace longstride
