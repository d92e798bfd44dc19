#include "framework/train/ranks/batching.h"

#include <algorithm>

#include "framework/core/errors.h"

namespace longstride {

Batching divide_batch(const TrainConfig& config, int ranks) {
  Batching b;
  b.sequence_ranks = static_cast<int>(config.parallel.sequence_ranks);
  if (ranks % b.sequence_ranks != 0)
    throw user_error("parallel.sequence_ranks is {}, which does not divide {} ranks; choose a divisor or other ranks",
                     b.sequence_ranks, ranks);
  const int groups = ranks / b.sequence_ranks;
  if (config.global_batch % groups != 0)
    throw user_error("train.global_batch is {}, which {} {} do not divide; choose a multiple of {} or other ranks",
                     config.global_batch, groups, b.sequence_ranks > 1 ? "groups of ranks" : "ranks", groups);
  b.per_rank = config.global_batch / groups;
  if (b.sequence_ranks > 1 && config.micro_batch > 1)
    throw user_error(
        "train.micro_batch is {}, but sequence ranks (parallel.sequence_ranks is {}) process one sequence at a time; "
        "set it to 1",
        config.micro_batch, b.sequence_ranks);
  const std::int64_t whole = b.sequence_ranks > 1 ? 1 : b.per_rank;
  b.micro = config.micro_batch > 0 ? std::min(config.micro_batch, whole) : whole;
  if (b.per_rank % b.micro != 0)
    throw user_error(
        "train.micro_batch is {}, which does not divide the {} sequences of each of {} ranks; choose a "
        "divisor of {}",
        b.micro, b.per_rank, ranks, b.per_rank);
  return b;
}

}  // namespace longstride
