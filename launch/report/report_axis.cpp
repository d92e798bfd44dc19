#include "launch/report/report_axis.h"

#include <algorithm>

namespace longstride {

RunAxis::RunAxis(const RunFacts& facts, ReportAxis axis) : facts_(&facts), axis_(axis) {
  if (axis != ReportAxis::seconds) return;
  seconds_.emplace_back(0, 0);
  double last = 0;
  for (const StepPoint& p : facts.history.steps) {
    const double now = facts.tokens_before(p.step);
    const double took = p.tokens_per_second > 0 ? std::max(0.0, now - last) / p.tokens_per_second : 0;
    seconds_.emplace_back(p.step, seconds_.back().second + took);
    last = now;
  }
}

double RunAxis::at(std::int64_t step) const {
  if (axis_ == ReportAxis::step) return static_cast<double>(step);
  if (axis_ == ReportAxis::bytes) return facts_->tokens_before(step);
  const auto after = std::lower_bound(seconds_.begin(), seconds_.end(), std::pair(step, 0.0),
                                      [](const auto& a, const auto& b) { return a.first < b.first; });
  if (after == seconds_.end()) return seconds_.back().second;
  if (after == seconds_.begin() || after->first == step) return after->second;
  const auto before = after - 1;
  const double share = static_cast<double>(step - before->first) / static_cast<double>(after->first - before->first);
  return before->second + share * (after->second - before->second);
}

}  // namespace longstride
