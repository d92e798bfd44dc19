// The axis of the curves of a page: steps, bytes seen, or seconds of training.
#pragma once
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "launch/report/run_facts.h"

namespace longstride {

enum class ReportAxis : std::uint8_t { step, bytes, seconds };
inline constexpr const char* axis_names[] = {"step", "bytes", "seconds"};  // words of --by, and in titles
inline const char* name_of(ReportAxis axis) { return axis_names[static_cast<std::size_t>(axis)]; }

// Where a run's steps are on the axis. Seconds are those of logged steps, without evaluations and restarts.
class RunAxis {
 public:
  RunAxis(const RunFacts& facts, ReportAxis axis);
  double at(std::int64_t step) const;

 private:
  const RunFacts* facts_;
  ReportAxis axis_;
  std::vector<std::pair<std::int64_t, double>> seconds_;  // until logged steps, ascending
};

}  // namespace longstride
