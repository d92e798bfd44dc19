// All memory of a training run on one rank: one block of exactly the planned size on the device that trains, cut into
// the flat buffers, what a step reads and reports, library workspace and the arena.
#pragma once
#include <optional>

#include "framework/core/context.h"
#include "framework/models/model.h"
#include "framework/train/step/host_memory.h"
#include "framework/train/step/memory_plan.h"

namespace longstride {

class TrainingState {
 public:
  // Allocates (zeroed but for the arena) and binds the model's parameters.
  TrainingState(Model& model, const TrainConfig& config, const MemoryPlan& plan, int ranks);

  Tensor masters;  // (flat_size) f32, like all flat buffers but `low`
  Tensor low;      // what matrix products read when they compute in a narrow type; absent in fp32
  Tensor gradients;
  Tensor wire;  // gradients as they travel between ranks; absent where they travel in fp32, or not at all
  Optimizer::State optimizer;
  Tensor step;       // (1) i64: the step's number, 0-based. Its tokens follow it in memory at `step_to_tokens` bytes
  Tensor tokens;     // (rows of this rank, context) u8
  Tensor nats;       // (1) f64: the sum of a step's losses
  Tensor losses;     // (micro-batch, positions of this rank) f32
  Tensor workspace;  // for libraries; absent on the CPU
  Arena& arena() { return arena_; }
  std::size_t bytes() const { return bytes_; }
  static constexpr std::size_t step_to_tokens = Arena::alignment;

 private:
  Tensor take(const Shape& shape, Dtype dtype);
  std::size_t bytes_;
  std::optional<HostMemory> host_;
  std::optional<DeviceMemory> gpu_;
  std::byte* base_;
  std::size_t taken_ = 0;
  Arena arena_;
};

}  // namespace longstride
