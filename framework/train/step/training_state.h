// All memory of a training run on one rank: one block on the device that trains, cut into the flat buffers, the inputs
// and results of a step, library workspace and the arena. Without a block it is a plan: tensors have shapes and null
// pointers, sizes() gives the bytes by purpose, and the arena counts.
#pragma once
#include <vector>

#include "framework/core/batch.h"
#include "framework/core/context.h"
#include "framework/core/device/memory.h"
#include "framework/models/model.h"
#include "framework/optim/optimizer.h"
#include "framework/train/checkpoint/saved_tensors.h"
#include "framework/train/step/memory_plan.h"

namespace longstride {

// The ranges of the flat buffers that a rank's optimizer updates: its pieces if sharded, otherwise everything.
std::vector<FlatRange> updated_ranges(const ParameterSet& parameters, const ParallelConfig& config, int rank,
                                      int ranks);

class TrainingState {
 public:
  // Lays the model's parameters out for the ranks and binds them. The block, of MemoryPlan::block() bytes, is zeroed
  // except for the arena.
  TrainingState(Model& model, const TrainConfig& config, int ranks, Device device, Block block = {});

  Tensor masters;        // (flat_size) f32, like all flat buffers but `low_precision`
  Tensor low_precision;  // the 16-bit copy that matrix products read; absent in fp32
  Tensor gradients;
  Tensor wire;  // gradients in the type in which they travel between ranks; absent if that is fp32 or nothing travels
  Optimizer::State optimizer;
  ParameterSet factors;  // the layout of optimizer.factors; empty unless Adafactor has them
  Tensor step;           // (1) i64: the step's number, 0-based
  Batch batch;           // this rank's rows outside stages, `step_to_batch` bytes after the number
  Tensor input;          // u8: the number, the batch and the gap between them, sent to the device in one copy
  RowStates states;      // this rank's rows'; absent if the model has none
  Tensor weight;         // (1) f64: the sum of the weights of the global batch; absent if the batch has none
  Tensor sums;           // (1 + auxiliary losses) f64, of a step and all ranks: `nats` and `auxiliary`
  Tensor nats;           // (1): the sum of the losses
  Tensor auxiliary;      // (auxiliary losses), as Context::auxiliary has them; absent if the model has none
  Tensor losses;         // f32, of the part of a micro-batch that this rank has, as many as any step has
  Tensor workspace;      // for libraries; absent if they need none
  static constexpr std::size_t step_to_batch = Arena::alignment;
  const BatchLayout& layout() const { return layout_; }  // the batch's
  // This rank's rows of a step of another shape, in the same memory.
  BatchLayout layout_of(const StepShape& shape) const;
  Batch batch_of(const StepShape& shape) const { return layout_of(shape).at(batch.tokens.data()); }
  std::size_t most_batch_bytes() const { return most_batch_bytes_; }  // the largest of all steps' layouts
  // The losses of this rank in `sequences` of a step.
  Tensor losses_of(const StepShape& shape, std::int64_t sequences) const;
  // A step's losses are divided by this to give their mean: how many the global batch has, or 1 if the weights have
  // been divided by their sum.
  double divisor(const StepShape& shape) const;

  // The content of a checkpoint, in place; with a sharded optimizer, only this rank's part.
  TrainingTensors saved(Model& model, const TrainConfig& config, int rank) const;
  const MemoryPlan& sizes() const { return sizes_; }  // everything above, by purpose
  Arena& arena() { return arena_; }
  std::size_t bytes() const { return block_.bytes(); }
  std::size_t used_bytes() const { return taken_ + arena_.high_water(); }
  // The context in which a step computes on this queue.
  Context context(const TrainConfig& config, const Queue& queue);

 private:
  std::int64_t losses_of_sequence(const StepShape& shape) const;
  void take_moments(const ParameterSet& parameters, const Optimizer::Config& config, const Shape& updated);
  Tensor take(std::int64_t MemoryPlan::*purpose, const Shape& shape, Dtype dtype);
  Block block_;
  BatchFields fields_;
  ParallelConfig parallel_;
  int ranks_;
  BatchLayout layout_;
  std::size_t most_batch_bytes_ = 0;
  std::size_t taken_ = 0;
  MemoryPlan sizes_;
  Arena arena_;
};

}  // namespace longstride
