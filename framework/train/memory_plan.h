// Exact bytes that training takes on one rank, by purpose, found by running the training step itself in a planning
// arena: nothing is allocated, and the run then takes exactly this.
#pragma once
#include <cstdint>

#include "framework/core/context.h"
#include "framework/models/model.h"
#include "framework/optim/optimizer.h"
#include "framework/train/train_config.h"

namespace longstride {

// How a global batch is divided: rank r takes rows [r * per_rank, (r + 1) * per_rank), `micro` at a time.
struct Batching {
  std::int64_t per_rank = 0;
  std::int64_t micro = 0;
  std::int64_t accumulation() const { return per_rank / micro; }
};
// UserError when the ranks do not divide the global batch, or micro_batch a rank's share. A micro_batch larger than
// the share means the whole share.
Batching divide_batch(const TrainConfig& config, int ranks);

struct MemoryPlan {
  std::int64_t parameters = 0;  // fp32 masters (and the low-precision copy, where there is one)
  std::int64_t gradients = 0;
  std::int64_t optimizer = 0;    // Adam's two moments and its scalars
  std::int64_t average = 0;      // running average of weights
  std::int64_t batch = 0;        // tokens and losses of one micro-batch
  std::int64_t activations = 0;  // the arena at its high-water mark
  std::int64_t tape = 0;         // of the activations: what forward saves for backward, at its own peak
  std::int64_t input = 0;        // rows read ahead
  std::int64_t communication = 0;
  // One block holds all but `input` and `communication`, which belong to the prefetcher and the communicator.
  std::int64_t block() const { return parameters + gradients + optimizer + average + batch + activations; }
  std::int64_t total() const { return block() + input + communication; }
};

inline constexpr int prefetch_depth = 2;  // steps read ahead

// What the optimizer needs to know of the recipe.
Optimizer::Config optimizer_config(const TrainConfig& config);

MemoryPlan plan_memory(Model& model, const TrainConfig& config, int ranks, Dtype dtype = Dtype::f32);

}  // namespace longstride
