// All memory of a training run on one rank: one block of exactly the planned size, cut into the flat buffers, the
// buffers of a micro-batch and the arena.
#pragma once
#include "framework/core/context.h"
#include "framework/models/model.h"
#include "framework/train/host_memory.h"
#include "framework/train/memory_plan.h"

namespace longstride {

class TrainingState {
 public:
  // Allocates, zeroes the flat buffers and binds the model's parameters to them.
  TrainingState(Model& model, const MemoryPlan& plan, std::int64_t micro_batch, std::int64_t context);

  Tensor masters, gradients;  // (flat_size)
  Optimizer::State optimizer;
  Tensor tokens, losses;  // (micro-batch, context)
  Arena& arena() { return arena_; }

 private:
  Tensor take(const Shape& shape, Dtype dtype);
  HostMemory block_;
  std::size_t taken_ = 0;
  Arena arena_;
};

}  // namespace longstride
