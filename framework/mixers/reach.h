// How many positions back the layers of a model read, once all that can be remembered is.
//
// The rows that layer n remembers are its inputs, which layers below computed in earlier segments with memories of
// their own: with a memory of M positions, N layers read up to N M positions before the segment (Dai et al. 2019,
// section 3.2). Windows, dilation and spans limit that; a compressed row stands for all positions it was made of.
#pragma once
#include <cstdint>
#include <vector>

namespace longstride {

struct LookBack {
  std::int64_t farthest = 0;        // from any position of a segment
  std::int64_t before_segment = 0;  // from the first position of the segment
};

// For every position of a segment, the earliest position that the layers so far read for it. Positions count from the
// first of the segment, so earlier segments have negative ones.
class Reach {
 public:
  static constexpr std::int64_t without_end = std::int64_t{1} << 40;  // positions, where everything before is read

  explicit Reach(std::int64_t segment);
  std::int64_t segment() const { return static_cast<std::int64_t>(earliest_.size()); }
  LookBack look_back() const;

  // The earliest position read for a position of this or an earlier segment, or for any of `count` from `first`.
  std::int64_t earliest_of(std::int64_t position) const;
  std::int64_t earliest_of(std::int64_t first, std::int64_t step, std::int64_t count) const;
  // A layer's query at `position` also reads what `earliest` was read for.
  void lower(std::int64_t position, std::int64_t earliest) {
    std::int64_t& own = earliest_[static_cast<std::size_t>(position)];
    if (earliest < own) own = earliest;
  }

 private:
  std::vector<std::int64_t> earliest_;
};

// The least of a window of rows whose ends never go back: rows enter at its end and leave at its beginning.
class SlidingLeast {
 public:
  void enter(std::int64_t row, std::int64_t value);
  void leave_before(std::int64_t row);
  bool empty() const { return first_ == rows_.size(); }
  std::int64_t least() const { return rows_[first_].value; }

 private:
  struct Row {
    std::int64_t row, value;
  };
  std::vector<Row> rows_;  // values rise from first_ on: a row behind a lesser later one can never be the least
  std::size_t first_ = 0;
};

}  // namespace longstride
