// Exact bytes that training takes on one rank, by purpose. The plan comes from the step itself: the same memory is laid
// out over a null block (TrainingState), and the same work runs in an arena that only counts (StepWork).
#pragma once
#include <cstdint>
#include <optional>
#include <string>

#include "framework/models/model.h"
#include "framework/train/evaluate/evaluator.h"
#include "framework/train/ranks/batching.h"

namespace longstride {

struct MemoryPlan {
  Device device = Device::cpu;
  Dtype compute = Dtype::f32;
  std::int64_t parameters = 0;  // fp32 masters (and the low-precision copy, where there is one)
  std::int64_t gradients = 0;
  std::int64_t exchange = 0;     // gradients in transit between ranks, if they travel in a 16-bit type
  std::int64_t optimizer = 0;    // moments and scalars; this rank's part when sharded
  std::int64_t average = 0;      // running average of weights
  std::int64_t states = 0;       // memory of this rank's rows: of this step and for the next
  std::int64_t batch = 0;        // the rows of a step, losses of a micro-batch
  std::int64_t libraries = 0;    // GPU: what cuBLASLt may use
  std::int64_t activations = 0;  // the arena at its high-water mark
  std::int64_t tape = 0;         // part of the activations: what forward saves for backward, at its own peak
  std::int64_t input = 0;        // rows read ahead; with a GPU, also buffers for transfers
  std::int64_t communication = 0;
  std::int64_t snapshot = 0;  // the copy that a checkpoint is written from
  // One block on the device holds everything but `input`, `communication` and `snapshot`, which are on the host.
  std::int64_t block() const {
    return parameters + gradients + exchange + optimizer + average + states + batch + libraries + activations;
  }
  std::int64_t total() const { return block() + input + communication + snapshot; }
  std::int64_t on_host() const { return total() - (shares_host_memory(device) ? 0 : block()); }
  std::int64_t on_device() const { return shares_host_memory(device) ? total() : block(); }
};

// The bytes that a rank may take on its device (MemoryPlan::on_device), or from its host's memory.
struct MemoryLimit {
  std::optional<std::int64_t> bytes;  // absent: not known
  std::string origin;                 // where it comes from: "free on this GPU"
};

inline constexpr int prefetch_depth = 2;  // steps read ahead

// The settings of evaluations during training.
EvaluationConfig validation_config(const TrainConfig& config, const Batching& batching, std::int64_t context);

// Lays the model's parameters out for the ranks. Planning for a GPU requires neither a GPU nor a build with CUDA.
MemoryPlan plan_memory(Model& model, const TrainConfig& config, int ranks, Device device = Device::cpu);

// UserError when the plan exceeds what its device has free; it names the largest micro-batch that would fit.
void check_fits(Model& model, const TrainConfig& config, int ranks, const MemoryPlan& plan, const MemoryLimit& limit);

}  // namespace longstride
