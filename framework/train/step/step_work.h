// Puts the work of one optimizer step on a queue, in order. Over an arena that only counts, the same code determines
// the memory that a step needs.
#pragma once
#include <cstdint>
#include <memory>

#include "framework/optim/optimizer.h"
#include "framework/train/ranks/gradient_exchange.h"
#include "framework/train/ranks/rank_links.h"
#include "framework/train/step/training_state.h"

namespace longstride {

// The optimizer's settings, taken from the recipe.
Optimizer::Config optimizer_config(const TrainConfig& config, Device device);

// Gives the model's attention the windows of a stage, or its own again.
void enter_stage(Model& model, const Stage* stage);

class StepWork {
 public:
  // All references must outlive this object.
  StepWork(Model& model, const TrainConfig& config, TrainingState& state, const RankLinks& links, const Queue& queue);

  // Processes the first `rows` rows of this rank's part of a batch of this shape, in whole micro-batches.
  void run(Context& ctx, const StepShape& shape, std::int64_t rows);
  // Only exchanges the gradients as they are, which makes them useless.
  void exchange(Context& ctx);

  bool sharded() const { return config_.parallel.shard && exchange_ != nullptr; }
  Optimizer& optimizer() { return optimizer_; }
  const Optimizer& optimizer() const { return optimizer_; }

 private:
  void divide_weights(Context& ctx, const Batch& batch);

  Model& model_;
  const TrainConfig& config_;
  TrainingState& state_;
  const int rank_;
  Collectives* const all_;                      // null: this rank trains alone
  std::unique_ptr<GradientExchange> exchange_;  // likewise
  Optimizer optimizer_;
};

}  // namespace longstride
