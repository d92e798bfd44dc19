// How a global batch is divided between ranks.
#pragma once
#include <cstdint>
#include <string>

#include "framework/train/stages.h"

namespace longstride {

// Group g of `sequence_ranks` consecutive ranks takes rows [g * per_rank, (g + 1) * per_rank), `micro` at a time.
struct Batching {
  std::int64_t per_rank = 0;
  std::int64_t micro = 0;
  int sequence_ranks = 1;  // ranks in a group
  std::int64_t accumulation() const { return per_rank / micro; }
  // A micro-batch's share of the global batch; ranks that hold one sequence together each have a part of it.
  double share(std::int64_t global_batch) const {
    return static_cast<double>(micro) / static_cast<double>(global_batch * sequence_ranks);
  }
  int group_of(int rank) const { return rank / sequence_ranks; }
  int index_of(int rank) const { return rank % sequence_ranks; }
};

// UserError when the ranks do not divide the global batch, or micro_batch does not divide a rank's share. A micro_batch
// larger than the share means the whole share. A group of several ranks takes one sequence at a time.
Batching divide_batch(const TrainConfig& config, int ranks);
// The same for the rows of a step; messages are about a stage's.
Batching divide_batch(const StepShape& shape, const ParallelConfig& config, int ranks);

// "2 ranks x 4 x micro-batches of 1": how `ranks` ranks do a step.
std::string text_of(const Batching& batching, int ranks);

}  // namespace longstride
