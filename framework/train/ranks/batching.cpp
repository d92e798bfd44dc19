#include "framework/train/ranks/batching.h"

#include <algorithm>

#include "framework/core/errors.h"
#include "framework/core/text/numbers.h"

namespace longstride {
namespace {

// `section`: where the recipe has these numbers.
Batching divide(const StepShape& shape, const ParallelConfig& config, int ranks, const char* section) {
  Batching b;
  b.sequence_ranks = static_cast<int>(config.sequence_ranks);
  if (ranks % b.sequence_ranks != 0)
    throw user_error("parallel.sequence_ranks is {}, which does not divide {}; choose a divisor or other ranks",
                     b.sequence_ranks, counted(ranks, "rank"));
  const int groups = ranks / b.sequence_ranks;
  if (shape.rows % groups != 0)
    throw user_error(
        "{}.global_batch is {}, which {} do not divide; choose a multiple of {} or other ranks", section, shape.rows,
        b.sequence_ranks > 1 ? counted(groups, "group of ranks", "groups of ranks") : counted(groups, "rank"), groups);
  b.per_rank = shape.rows / groups;
  if (b.sequence_ranks > 1 && shape.micro_rows > 1)
    throw user_error(
        "train.micro_batch is {}, but sequence ranks (parallel.sequence_ranks is {}) process one sequence at a time; "
        "set it to 1",
        shape.micro_rows, b.sequence_ranks);
  const std::int64_t whole = b.sequence_ranks > 1 ? 1 : b.per_rank;
  b.micro = shape.micro_rows > 0 ? std::min(shape.micro_rows, whole) : whole;
  if (b.per_rank % b.micro != 0)
    throw user_error("{}.micro_batch is {}, which does not divide the {} of each of {}; choose a divisor of {}",
                     section, b.micro, counted(b.per_rank, "sequence"), counted(ranks, "rank"), b.per_rank);
  return b;
}

}  // namespace

Batching divide_batch(const TrainConfig& config, int ranks) {
  return divide({config.global_batch, config.micro_batch}, config.parallel, ranks, "train");
}

Batching divide_batch(const StepShape& shape, const ParallelConfig& config, int ranks) {
  return divide(shape, config, ranks, "train.stages");
}

std::string text_of(const Batching& b, int ranks) {
  const int groups = ranks / b.sequence_ranks;
  const std::string who = b.sequence_ranks == 1
                              ? counted(ranks, "rank")
                              : fmt::format("{} of {} ranks", counted(groups, "group"), b.sequence_ranks);
  return fmt::format("{} x {} x micro-batches of {}", who, b.accumulation(), b.micro);
}

}  // namespace longstride
