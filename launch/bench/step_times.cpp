#include "launch/bench/step_times.h"

#include <algorithm>
#include <chrono>

namespace longstride {
namespace {

using Clock = std::chrono::steady_clock;

struct Timed {
  TrainingStep& step;
  const std::vector<std::uint8_t>& rows;
  Communicator& comm;
  const StepsToTime& wanted;
  StepTimes times;
};

double milliseconds_since(Clock::time_point begin) {
  return std::chrono::duration<double, std::milli>(Clock::now() - begin).count();
}

// Every rank calls it and gets rank 0's answer: a rank that took another number of steps would wait for the others
// forever.
std::size_t steps_to_time(const Timed& t, double milliseconds_of_one) {
  const double fit = 1e3 * t.wanted.seconds / milliseconds_of_one;
  auto steps = static_cast<std::size_t>(std::min<double>(t.wanted.most, std::max<double>(t.wanted.least, fit)));
  t.comm.broadcast(&steps, sizeof steps, 0);
  return steps;
}

// Three steps are not timed: the first loads kernels, the second captures the graph, the third warms up the GPU.
void time_on_gpu(Timed& t) {
  StepTimer third;
  for (int i = 0; i < 3; ++i) t.step.run(t.rows.data(), i == 2 ? &third : nullptr);
  t.step.report();
  std::vector<StepTimer> timers(steps_to_time(t, third.end.milliseconds_since(third.begin)) + 1);
  const Clock::time_point begin = Clock::now();
  for (std::size_t i = 0; i + 1 < timers.size(); ++i) t.step.run(t.rows.data(), &timers[i]);
  t.times.loss = t.step.report().loss;
  t.times.wall = milliseconds_since(begin);
  t.step.run(t.rows.data(), &timers.back());  // this step's start ends the last timed step
  t.step.report();
  for (std::size_t i = 0; i + 1 < timers.size(); ++i) {
    t.times.milliseconds.push_back(timers[i + 1].begin.milliseconds_since(timers[i].begin));
    t.times.busy += timers[i].end.milliseconds_since(timers[i].begin);
  }
  if (t.comm.size() == 1) return;
  for (int i = 0; i < 3; ++i) t.step.exchange_only(nullptr);
  for (StepTimer& timer : timers) t.step.exchange_only(&timer);
  t.step.report();
  for (const StepTimer& timer : timers) t.times.exchange.push_back(timer.end.milliseconds_since(timer.begin));
}

void time_on_cpu(Timed& t) {
  const Clock::time_point first = Clock::now();
  t.step.run(t.rows.data());
  const std::size_t steps = steps_to_time(t, milliseconds_since(first));
  for (std::size_t i = 0; i < steps; ++i) {
    const Clock::time_point begin = Clock::now();
    t.step.run(t.rows.data());
    t.times.milliseconds.push_back(milliseconds_since(begin));
  }
  t.times.loss = t.step.report().loss;
}

}  // namespace

StepTimes time_steps(TrainingStep& step, const std::vector<std::uint8_t>& rows, std::int64_t warm_up,
                     Communicator& comm, const StepsToTime& wanted) {
  Timed t{step, rows, comm, wanted, {}};
  for (std::int64_t i = 0; i < warm_up; ++i) step.run(rows.data());  // until rows remember as much as they can
  step.plan().device == Device::cuda ? time_on_gpu(t) : time_on_cpu(t);
  return t.times;
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const std::size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

}  // namespace longstride
