// How far back a layer of distance attention reads, through what it remembers.
#include <set>
#include <tuple>

#include "framework/mixers/distance/mixer.h"

namespace longstride {
namespace {

using Rows = std::vector<std::int64_t>;  // for every key row, the earliest position that layers below read for it

std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

// Row `row` of those that a segment whose first position is `first` became.
std::int64_t earliest_of_compressed(const Reach& below, const MemoryConfig& memory, std::int64_t first,
                                    std::int64_t row) {
  const std::int64_t results = below.segment() / memory.rate;
  switch (memory.compress) {
    case Compression::dilated:
      return below.earliest_of(first + row, results, memory.rate);
    case Compression::most_used:  // the kept rows depend on the text, but stay in order
      return below.earliest_of(first + row, 1, below.segment() - results + 1);
    default:
      return below.earliest_of(first + row * memory.rate, 1, memory.rate);
  }
}

// The rows of [compressed memory | memory | segment].
Rows rows_read(const Reach& below, const MemoryConfig& memory) {
  Rows out;
  for (std::int64_t r = 0; r < memory.compressed; ++r) {
    const std::int64_t results = below.segment() / memory.rate, back = memory.compressed - 1 - r;
    out.push_back(earliest_of_compressed(below, memory, -memory.length - (back / results + 1) * below.segment(),
                                         results - 1 - back % results));
  }
  for (std::int64_t p = -memory.length; p < below.segment(); ++p) out.push_back(below.earliest_of(p));
  return out;
}

// A query's rows are those of its residue class within a distance.
void add_head(Reach& reach, const Rows& rows, const kernels::SeenEntries& seen) {
  const std::int64_t all = std::ssize(rows), before = all - reach.segment();
  for (std::int64_t first = 0; first < std::min(seen.step, all); ++first) {
    SlidingLeast least;
    for (std::int64_t row = first; row < all; row += seen.step) {
      if (const std::int64_t entering = row - seen.begin * seen.step; entering >= 0)
        least.enter(entering, rows[at(entering)]);
      least.leave_before(row - seen.end * seen.step + 1);
      if (row >= before && !least.empty()) reach.lower(row - before, least.least());
    }
  }
}

}  // namespace

void DistanceMixer::extend(Reach& reach) const {
  std::vector<float> longest = shares_of(static_cast<double>(config_.distance.span.longest));
  const kernels::DistanceScores scores = mask_with(longest);
  const Rows rows = rows_read(reach, config_.memory);
  std::set<std::tuple<std::int64_t, std::int64_t, std::int64_t>> heads;
  for (std::int64_t h = 0; h < this->heads(); ++h) {
    const kernels::SeenEntries seen = scores.seen_by(h);
    heads.insert({seen.step, seen.begin, seen.end});
  }
  for (const auto& [step, begin, end] : heads) add_head(reach, rows, {step, begin, end});
}

}  // namespace longstride
