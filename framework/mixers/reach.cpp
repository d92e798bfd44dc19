#include "framework/mixers/reach.h"

#include <algorithm>

namespace longstride {

Reach::Reach(std::int64_t segment) : earliest_(static_cast<std::size_t>(segment)) {
  for (std::int64_t i = 0; i < segment; ++i) earliest_[static_cast<std::size_t>(i)] = i;
}

LookBack Reach::look_back() const {
  LookBack out;
  for (std::int64_t i = 0; i < segment(); ++i) {
    const std::int64_t earliest = earliest_[static_cast<std::size_t>(i)];
    out.farthest = std::max(out.farthest, i - earliest);
    out.before_segment = std::max(out.before_segment, -earliest);
  }
  return out;
}

// An earlier segment reads as much, seen from the position at the same place in it.
std::int64_t Reach::earliest_of(std::int64_t position) const {
  const std::int64_t offset = (position % segment() + segment()) % segment();
  return position - offset + earliest_[static_cast<std::size_t>(offset)];
}

std::int64_t Reach::earliest_of(std::int64_t first, std::int64_t step, std::int64_t count) const {
  std::int64_t out = earliest_of(first);
  for (std::int64_t n = 1; n < count; ++n) out = std::min(out, earliest_of(first + n * step));
  return out;
}

void SlidingLeast::enter(std::int64_t row, std::int64_t value) {
  while (!empty() && rows_.back().value >= value) rows_.pop_back();
  rows_.push_back({row, value});
}

void SlidingLeast::leave_before(std::int64_t row) {
  while (!empty() && rows_[first_].row < row) ++first_;
}

}  // namespace longstride
