// The order of one optimizer step, as its work is put on a queue. Over an arena that only counts, the same order tells
// the memory that a step takes.
#pragma once
#include <cstdint>
#include <memory>

#include "framework/optim/optimizer.h"
#include "framework/train/ranks/gradient_exchange.h"
#include "framework/train/ranks/rank_links.h"
#include "framework/train/step/training_state.h"

namespace longstride {

// What the optimizer needs to know of the recipe.
Optimizer::Config optimizer_config(const TrainConfig& config, Device device);

class StepWork {
 public:
  // All live longer.
  StepWork(Model& model, const TrainConfig& config, TrainingState& state, const RankLinks& links, const Queue& queue);

  // The first `rows` rows of this rank's batch, whole micro-batches, each row read as `sequences` sequences.
  void run(Context& ctx, std::int64_t sequences, std::int64_t rows);
  // Only the exchange of the gradients as they are, after which they are of no use.
  void exchange(Context& ctx);

  bool sharded() const { return config_.parallel.shard && exchange_ != nullptr; }
  Optimizer& optimizer() { return optimizer_; }
  const Optimizer& optimizer() const { return optimizer_; }

 private:
  Model& model_;
  const TrainConfig& config_;
  TrainingState& state_;
  const Batching batching_;
  const int rank_;
  std::unique_ptr<GradientExchange> exchange_;  // absent: this rank trains alone
  Optimizer optimizer_;
};

}  // namespace longstride
