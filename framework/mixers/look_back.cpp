#include "framework/mixers/look_back.h"

#include <algorithm>
#include <deque>
#include <set>
#include <tuple>

namespace longstride {
namespace {

using Places = std::vector<std::int64_t>;  // positions, counted from the first of the segment

std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

class Layers {
 public:
  Layers(const MemoryConfig& memory, std::int64_t segment)
      : memory_(memory), segment_(segment), earliest_(at(segment)) {
    for (std::int64_t i = 0; i < segment; ++i) earliest_[at(i)] = i;
  }

  void add(const kernels::DistanceScores& mask) {
    const Places rows = rows_read();
    std::set<std::tuple<std::int64_t, std::int64_t, std::int64_t>> heads;
    for (std::int64_t h = 0; h < mask.q.size(2); ++h) {
      const kernels::SeenEntries seen = mask.seen_by(h);
      heads.insert({seen.step, seen.begin, seen.end});
    }
    for (const auto& [step, begin, end] : heads) add_head(rows, {step, begin, end});
  }

  LookBack look_back() const {
    LookBack out;
    for (std::int64_t i = 0; i < segment_; ++i) {
      out.farthest = std::max(out.farthest, i - earliest_[at(i)]);
      out.before_segment = std::max(out.before_segment, -earliest_[at(i)]);
    }
    return out;
  }

 private:
  // What the stream of an earlier or this segment reads at most: the same as at that offset of this one.
  std::int64_t earliest_of(std::int64_t position) const {
    const std::int64_t offset = (position % segment_ + segment_) % segment_;
    return position - offset + earliest_[at(offset)];
  }
  std::int64_t earliest_of(std::int64_t first, std::int64_t step, std::int64_t count) const {
    std::int64_t out = earliest_of(first);
    for (std::int64_t n = 1; n < count; ++n) out = std::min(out, earliest_of(first + n * step));
    return out;
  }
  // Row `row` of those that a segment whose first position is `first` became.
  std::int64_t earliest_of_compressed(std::int64_t first, std::int64_t row) const {
    const std::int64_t results = segment_ / memory_.rate;
    switch (memory_.compress) {
      case Compression::dilated:
        return earliest_of(first + row, results, memory_.rate);
      case Compression::most_used:  // which ones stay depends on the text, but they stay in order
        return earliest_of(first + row, 1, segment_ - results + 1);
      default:
        return earliest_of(first + row * memory_.rate, 1, memory_.rate);
    }
  }
  // Of every row of [compressed memory | memory | segment], what the layers below read for it.
  Places rows_read() const {
    Places out;
    for (std::int64_t r = 0; r < memory_.compressed; ++r) {
      const std::int64_t results = segment_ / memory_.rate, back = memory_.compressed - 1 - r;
      out.push_back(
          earliest_of_compressed(-memory_.length - (back / results + 1) * segment_, results - 1 - back % results));
    }
    for (std::int64_t p = -memory_.length; p < segment_; ++p) out.push_back(earliest_of(p));
    return out;
  }

  // Every query reads the least of its rows: those of its residue class within a distance, whose least one is kept by a
  // queue of rows that are less than all rows behind them.
  void add_head(const Places& rows, const kernels::SeenEntries& seen) {
    const std::int64_t all = std::ssize(rows), before = all - segment_;
    for (std::int64_t first = 0; first < std::min(seen.step, all); ++first) {
      std::deque<std::int64_t> least;
      for (std::int64_t row = first; row < all; row += seen.step) {
        if (const std::int64_t entering = row - seen.begin * seen.step; entering >= 0) {
          while (!least.empty() && rows[at(least.back())] >= rows[at(entering)]) least.pop_back();
          least.push_back(entering);
        }
        while (!least.empty() && least.front() <= row - seen.end * seen.step) least.pop_front();
        if (row < before || least.empty()) continue;
        std::int64_t& earliest = earliest_[at(row - before)];
        earliest = std::min(earliest, rows[at(least.front())]);
      }
    }
  }

  MemoryConfig memory_;
  std::int64_t segment_;
  Places earliest_;  // of every position of a segment
};

}  // namespace

LookBack look_back_through(const std::vector<kernels::DistanceScores>& layers, const MemoryConfig& memory) {
  Layers all(memory, layers.front().q.size(1));
  for (const kernels::DistanceScores& mask : layers) all.add(mask);
  return all.look_back();
}

}  // namespace longstride
