#include "framework/train/stages.h"

#include <algorithm>

namespace longstride {

const Stage* stage_at(const TrainConfig& config, std::int64_t step) {
  for (const Stage& stage : config.stages)
    if (step < stage.until) return &stage;
  return nullptr;
}

StepShape shape_of(const TrainConfig& config, const Stage* stage, std::int64_t context) {
  StepShape shape{config.global_batch, config.micro_batch, context, 1};
  if (stage == nullptr) return shape;
  const std::int64_t own = stage->context > 0 ? stage->context : context;
  if (stage->global_batch > 0) {
    shape.rows = stage->global_batch;
    shape.context = own;
  } else {
    shape.sequences = context / own;
  }
  if (stage->micro_batch > 0) shape.micro_rows = stage->micro_batch;
  return shape;
}

StepShape shape_at(const TrainConfig& config, std::int64_t step, std::int64_t context) {
  return shape_of(config, stage_at(config, step), context);
}

std::vector<StageSteps> stretches(const TrainConfig& config, std::int64_t context) {
  std::vector<StageSteps> all;
  std::int64_t first = 0;
  for (const Stage& stage : config.stages) {
    all.push_back({&stage, first, stage.until, shape_of(config, &stage, context)});
    first = stage.until;
  }
  all.push_back({nullptr, first, std::max(config.steps, first), shape_of(config, nullptr, context)});
  return all;
}

std::int64_t positions_before(const TrainConfig& config, std::int64_t step, std::int64_t context) {
  std::int64_t positions = 0;
  for (const StageSteps& part : stretches(config, context)) {
    const std::int64_t end = part.stage == nullptr ? step : std::min(step, part.end);
    if (end > part.first) positions += (end - part.first) * part.shape.positions();
  }
  return positions;
}

}  // namespace longstride
