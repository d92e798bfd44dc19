// The form of a pattern that kernels read: plain structs in three flat arrays, whose size does not depend on the length
// of the sequence. The tiles of a part follow from it by closed form (tile_span.h).
//
//   head  ->  passes   an order of the query rows, read once under one online softmax; the passes of a head are merged
//                      by log-sum-exp
//   pass  ->  parts    a row set of key rows in which every query row may attend to one interval; the parts of a head
//                      are disjoint
//   part  ->  tiles    the (query tile, key tile) pairs that hold an allowed pair, and whether all their pairs are
//                      allowed: computed where needed
//
// A *row set* is an increasing sequence of rows of q, k or v, read in place: entry t is the row at position
//     base + (t / run) * period + t mod run.
// Natural order: run = n. Residue class r of l: base = r, run = 1, period = l. Summary rows of sub-block s:
// base = l - (s+1)c, run = c, period = l. Row sets are increasing, so "all allowed positions up to p" is a prefix.
//
// A *limit* gives a position from the query position i: (block > 0 ? floor(i / block) * block : i) - back, where a
// negative `back` looks ahead. Every part allows the keys of its row set from the low limit (at least 0) to the high
// limit (at most the last), both included:
//                    low            high     high limit when merged with a window (excludes the window's keys)
//     dense          0              i
//     local          i - w + 1      i
//     fixed_block    floor(i/l) l   i
//     column         0              i        i - w  or  floor(i/l) l - 1
//     fixed_summary  0              i        i - w  or  floor(i/l) l - 1
//     first          0              i        i - w  or  floor(i/l) l - 1
//     block_window   floor(i/B)B-B  i
//     dilated        i - (w - 1) d  i
//     random_blocks  like dense, and lists restrict it (block_lists.h)
//     shifted_block  floor(i/L) L + s L and as much + L - 1, and both less n's blocks: two parts
// In both directions the high limit is the last key, i + (w-1)/2, floor(i/l) l + l - 1 or floor(i/B) B + 2B - 1; a part
// merged with a window becomes two, behind it and ahead of it.
// Counted in entries of the row set, every query row therefore has one interval, whose ends never decrease from row to
// row: tiles follow from the first and last row of a tile, and a partial tile is masked by two comparisons.
#pragma once
#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <stdexcept>
#include <utility>
#include <vector>

#include "kernels/attention/pattern/pattern.h"

namespace longstride::kernels {

struct RowSet {
  std::int32_t base = 0, run = 1, period = 1, length = 0;

  constexpr std::int32_t position(std::int32_t t) const { return base + t / run * period + t % run; }
  // Number of entries with a position below p; p may be negative or beyond the end.
  constexpr std::int32_t count_below(std::int32_t p) const {
    if (p <= base) return 0;
    const std::int32_t past = p - base, rest = past % period;
    const std::int32_t count = past / period * run + (rest < run ? rest : run);
    return count < length ? count : length;
  }
  constexpr bool holds(std::int32_t p) const { return count_below(p + 1) > count_below(p); }
  bool operator==(const RowSet&) const = default;
};

// This row set shifted by `offset` positions, with all its entries below n.
constexpr RowSet rows_within(RowSet s, std::int32_t offset, std::int32_t n) {
  s.base += offset;
  s.length = n;  // an upper bound: count_below then counts without a limit
  s.length = s.count_below(n);
  return s;
}

struct Limit {
  std::int32_t back = 0, block = 0;

  constexpr std::int32_t of(std::int32_t i) const { return (block > 0 ? i / block * block : i) - back; }
  bool operator==(const Limit&) const = default;
};

// Entries [begin, end) of a row set; none when end <= begin.
struct Interval {
  std::int32_t begin = 0, end = 0;
};

struct Part {
  PartKind kind = PartKind::dense;
  RowSet keys;  // residue class 0
  Limit low, high;

  // The keys to which the query at position i may attend; `set` holds the keys of its residue class.
  constexpr Interval interval(const RowSet& set, std::int32_t i) const {
    return {set.count_below(low.of(i)), set.count_below(high.of(i) + 1)};
  }
};

// Residue class s reads queries and keys shifted by s positions (for column: one for each residue class). Classes share
// no query and no key row. Class 0 is the longest; the others use its tiles, of which the last may hold one row less,
// or none.
struct Pass {
  RowSet queries;  // residue class 0
  std::int32_t classes = 1;
  std::int32_t first_part = 0, parts = 0;
};

struct HeadPlan {
  std::int32_t first_pass = 0, passes = 0;
};

// Rows of a query tile and of a key tile, in entries of their row sets.
struct TileShape {
  std::int32_t queries = 64, keys = 64;
};

// Most parts of a pass: a window, and in both directions summary rows and the column of summary_inclusive behind it and
// ahead of it.
inline constexpr int most_parts_of_pass = 5;

// A pass, or some of its parts, as kernels receive it: by value.
template <int MostParts>
struct PassArgs {
  static constexpr int most_parts = MostParts;
  RowSet queries;  // residue class 0
  std::int32_t classes = 0, parts = 0;
  Part part[most_parts];

  PassArgs() = default;
  PassArgs(const RowSet& rows, std::int32_t of_classes, std::span<const Part> of_parts)
      : queries(rows), classes(of_classes), parts(static_cast<std::int32_t>(of_parts.size())) {
    if (parts > most_parts) throw std::logic_error("a pass of more parts than a kernel takes");
    std::copy(of_parts.begin(), of_parts.end(), part);
  }
};

struct AttentionPlan {
  std::int32_t n = 0, queries = 0;  // rows of keys and of queries; query row i has position i
  TileShape tile;
  std::vector<HeadPlan> heads;  // one per head; heads with the same geometry name the same passes
  std::vector<Pass> passes;
  std::vector<Part> parts;

  std::span<const Pass> passes_of(std::int64_t head) const {
    const HeadPlan& h = heads[static_cast<std::size_t>(head)];
    return {passes.data() + h.first_pass, static_cast<std::size_t>(h.passes)};
  }
  std::span<const Part> parts_of(const Pass& pass) const {
    return {parts.data() + pass.first_part, static_cast<std::size_t>(pass.parts)};
  }
};

// Most positions in a plan: the sum of two of them and a tile stays far below 2^31.
inline constexpr std::int64_t longest_plan = std::int64_t{1} << 24;

// The plan of one layer for sequences of n positions, 1 <= n <= longest_plan, with `queries` rows of queries (0: n).
// Throws std::invalid_argument for another length, a pattern that problem_of rejects, or other queries than keys under
// a pattern of the past, where a query's own position among the keys would be unknown: except 1, which is the last
// position (a step of decoding next to all its keys). Takes a few microseconds for any n.
std::shared_ptr<const AttentionPlan> make_plan(const PatternConfig& pattern, std::int64_t layer, std::int64_t heads,
                                               std::int64_t n, TileShape tile = {}, std::int64_t queries = 0);

// True if queries may see later positions.
bool looks_ahead(const AttentionPlan& plan);

// True if every query of every head sees a key, as far as closed form tells: itself or the first key. False may be
// wrong, true is not.
bool every_query_sees_a_key(const AttentionPlan& plan);

// The plans of a model. Layers that use the same parts share one.
class PlanCache {
 public:
  PlanCache(PatternConfig pattern, std::int64_t heads) : pattern_(std::move(pattern)), heads_(heads) {}
  std::shared_ptr<const AttentionPlan> get(std::int64_t layer, std::int64_t n);

 private:
  PatternConfig pattern_;
  std::int64_t heads_;
  std::map<std::pair<std::vector<PartKind>, std::int64_t>, std::shared_ptr<const AttentionPlan>> plans_;
};

}  // namespace longstride::kernels
