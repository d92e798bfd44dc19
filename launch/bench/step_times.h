// How long optimizer steps take, one after another: what `bench step` prints and `recipe` counts with.
#pragma once
#include <cstdint>
#include <vector>

#include "framework/train/step/training_step.h"

namespace longstride {

// How many steps to time.
struct StepsToTime {
  int most = 20;
  int least = 3;
  double seconds = 20;  // fewer steps than `most` if they would take longer
};

struct StepTimes {
  std::vector<double> milliseconds;  // each step, from its start to the next one's
  double wall = 0;                   // GPU: time of all steps on the host
  double busy = 0;                   // GPU: time in which it worked on them
  double loss = 0;                   // loss of the last step
  std::vector<double> exchange;      // milliseconds of a step's exchange between ranks, with nothing else running
};

// Runs a started `step` on `rows` (random_rows.h), `warm_up` times before anything is timed. Every rank calls it.
StepTimes time_steps(TrainingStep& step, const std::vector<std::uint8_t>& rows, std::int64_t warm_up,
                     Communicator& comm, const StepsToTime& wanted);

double median(std::vector<double> values);

}  // namespace longstride
