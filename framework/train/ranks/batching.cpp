#include "framework/train/ranks/batching.h"

#include <algorithm>

#include "framework/core/errors.h"

namespace longstride {
namespace {

// `section`: where the recipe has these numbers.
Batching divide(const StepShape& shape, const ParallelConfig& config, int ranks, const char* section) {
  Batching b;
  b.sequence_ranks = static_cast<int>(config.sequence_ranks);
  if (ranks % b.sequence_ranks != 0)
    throw user_error("parallel.sequence_ranks is {}, which does not divide {} ranks; choose a divisor or other ranks",
                     b.sequence_ranks, ranks);
  const int groups = ranks / b.sequence_ranks;
  if (shape.rows % groups != 0)
    throw user_error("{}.global_batch is {}, which {} {} do not divide; choose a multiple of {} or other ranks",
                     section, shape.rows, groups, b.sequence_ranks > 1 ? "groups of ranks" : "ranks", groups);
  b.per_rank = shape.rows / groups;
  if (b.sequence_ranks > 1 && shape.micro_rows > 1)
    throw user_error(
        "train.micro_batch is {}, but sequence ranks (parallel.sequence_ranks is {}) process one sequence at a time; "
        "set it to 1",
        shape.micro_rows, b.sequence_ranks);
  const std::int64_t whole = b.sequence_ranks > 1 ? 1 : b.per_rank;
  b.micro = shape.micro_rows > 0 ? std::min(shape.micro_rows, whole) : whole;
  if (b.per_rank % b.micro != 0)
    throw user_error(
        "{}.micro_batch is {}, which does not divide the {} sequences of each of {} ranks; choose a "
        "divisor of {}",
        section, b.micro, b.per_rank, ranks, b.per_rank);
  return b;
}

}  // namespace

Batching divide_batch(const TrainConfig& config, int ranks) {
  return divide({config.global_batch, config.micro_batch}, config.parallel, ranks, "train");
}

Batching divide_batch(const StepShape& shape, const ParallelConfig& config, int ranks) {
  return divide(shape, config, ranks, "train.stages");
}

}  // namespace longstride
