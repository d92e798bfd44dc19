// How long a run pauses between its steps from now on: each kind of pause as often as it is still due, and each time as
// long as it has taken on average in this process.
#pragma once
#include <algorithm>
#include <array>
#include <cstdint>

namespace longstride {

class TimeLeft {
 public:
  enum Pause : std::uint8_t { evaluation, sampling, saving };

  explicit TimeLeft(std::int64_t steps) : steps_(steps) {}
  // After every `every` steps (0: not) and after the last one.
  void expect(Pause pause, std::int64_t every) { of(pause).every = every, of(pause).expected = true; }
  // A pause probably takes this long, until the first one has been measured.
  void guess(Pause pause, double seconds) { of(pause).guess = seconds; }
  void took(Pause pause, double seconds) {
    of(pause).seconds += seconds;
    ++of(pause).measured;
  }
  // Seconds of the pauses after `step` and later steps.
  double from(std::int64_t step) const {
    double seconds = 0;
    for (const Kind& kind : kinds_) {
      const double each = kind.measured > 0 ? kind.seconds / static_cast<double>(kind.measured) : kind.guess;
      seconds += each * static_cast<double>(times(kind, step));
    }
    return seconds;
  }

 private:
  struct Kind {
    bool expected = false;
    std::int64_t every = 0, measured = 0;
    double guess = 0, seconds = 0;
  };
  Kind& of(Pause pause) { return kinds_[pause]; }
  std::int64_t times(const Kind& kind, std::int64_t step) const {
    if (!kind.expected || step > steps_) return 0;
    if (kind.every == 0) return 1;
    return steps_ / kind.every - (std::max<std::int64_t>(step, 1) - 1) / kind.every + (steps_ % kind.every > 0 ? 1 : 0);
  }

  std::int64_t steps_;
  std::array<Kind, 3> kinds_{};
};

}  // namespace longstride
