// Where the time of a training step on a GPU goes. One step runs kernel by kernel with two events around every range of
// work. This includes the time of the events themselves, so a sum above the time of the step as a graph is scaled down
// to that.
#pragma once
#include <memory>
#include <nlohmann/json.hpp>
#include <vector>

#include "framework/train/step/training_step.h"
#include "kernels/base/meter.h"
#include "launch/bench/bench_device.h"

namespace longstride {

class StepMeter : public kernels::Meter {
 public:
  explicit StepMeter(const Queue& queue) : queue_(queue) {}
  void begin(const kernels::Cost& cost) override;
  void end() override;
  void forget() { used_ = 0; }

  struct Line {
    int ranges = 0;
    double ms = 0, bytes = 0, operations = 0, floor_ms = 0;
    double operations_ms = 0;  // time of the operations at the device's best rates
  };
  // Waits for the events. The bound of a range is the longer of its bytes' and its operations' time.
  std::vector<Line> lines(const Ceilings& ceilings) const;

 private:
  struct Range {
    kernels::Cost cost;
    Event begin, end;
  };
  const Queue queue_;
  std::vector<std::unique_ptr<Range>> ranges_;  // kept from step to step
  std::size_t used_ = 0;
  int depth_ = 0;
};

// Runs two more steps and measures the second; `milliseconds` is the time of a step that replays as a graph.
nlohmann::ordered_json step_breakdown(TrainingStep& step, const std::uint8_t* rows, const Model& model,
                                      const Ceilings& ceilings, double milliseconds);
void print_breakdown(const nlohmann::ordered_json& breakdown);

}  // namespace longstride
