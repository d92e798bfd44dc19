// Writes a checkpoint synchronously from one rank, as CheckpointWriter does while training continues.
#pragma once
#include <string>

#include "framework/train/checkpoint/checkpoint_files.h"

namespace longstride {

inline void save_checkpoint(const std::string& run, const CheckpointState& state, const TrainingTensors& tensors,
                            std::int64_t keep, bool keep_best = false) {
  const auto directory = begin_checkpoint(run, state.step);
  const CheckpointShare all = share_of(tensors, 0, 1);
  commit_checkpoint(run, state, write_share(directory->path(), state.step, tensors, all), *directory, keep, keep_best);
}

}  // namespace longstride
