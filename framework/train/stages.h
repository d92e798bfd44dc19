// The rows that the steps of a run read, which its stages may change (TrainConfig::stages).
#pragma once
#include <cstdint>
#include <vector>

#include "framework/train/train_config.h"

namespace longstride {

// The rows of one step. A row is consecutive bytes of the data, and may be read as several sequences.
struct StepShape {
  std::int64_t rows = 0;        // rows in the global batch
  std::int64_t micro_rows = 0;  // in one forward and backward of one rank; 0: all of a rank's
  std::int64_t context = 0;     // positions of a row
  std::int64_t sequences = 1;   // that a row is cut into

  std::int64_t positions() const { return rows * context; }
  std::int64_t sequence() const { return context / sequences; }  // positions of one
  bool operator==(const StepShape&) const = default;
};

// The stage of 0-based optimizer step `step`; null after the last.
const Stage* stage_at(const TrainConfig& config, std::int64_t step);
// `context`: the longest, of a row unless a stage has rows of its own.
StepShape shape_of(const TrainConfig& config, const Stage* stage, std::int64_t context);
StepShape shape_at(const TrainConfig& config, std::int64_t step, std::int64_t context);
// Positions that the steps before `step` read.
std::int64_t positions_before(const TrainConfig& config, std::int64_t step, std::int64_t context);

// A stretch of steps with one stage, or the steps after the last stage.
struct StageSteps {
  const Stage* stage = nullptr;  // the config's, which must outlive this
  std::int64_t first = 0, end = 0;
  StepShape shape;
};
std::vector<StageSteps> stretches(const TrainConfig& config, std::int64_t context);

}  // namespace longstride
