// The pairs of a pattern, in cells: rows are queries of one segment, columns the key rows that they see, in parts:
// compressed memory, memory, segment. A cell stands for one pair or, where all would not fit, for a square of pairs.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "framework/mixers/mixer.h"

namespace longstride {

// Key rows [begin, end) of a part with this many.
struct ShownPart {
  const char* name;
  std::int64_t begin = 0, end = 0, rows = 0;
};

struct PatternCell {
  std::int64_t pairs = 0;  // pairs that are not in a future that is never seen
  std::int64_t seen = 0;   // pairs of weight above 0
  double weight = 0;       // the sum
  bool own = false;        // the pair of a query with itself

  bool whole() const { return pairs > 0 && weight == static_cast<double>(pairs); }
};

class PatternView {
 public:
  // Queries 0 to `queries`, with all key rows; or, if `cropped`, as many rows of each part as queries: the last ones of
  // what is remembered, and of the segment the first.
  PatternView(const KeyRows& keys, Mixer::PairWeight weight, std::int64_t queries, bool cropped);

  // Makes cells large enough for this many columns.
  void fit(std::int64_t columns);
  std::int64_t side() const { return side_; }  // pairs along the side of a cell
  std::int64_t queries() const { return queries_; }
  bool ahead() const { return keys_.ahead; }
  const std::vector<ShownPart>& parts() const { return parts_; }
  std::int64_t rows() const { return cells(queries_); }
  std::int64_t columns(const ShownPart& part) const { return cells(part.end - part.begin); }
  std::int64_t columns() const;
  bool has_row_of(std::int64_t row, std::int64_t query) const { return query / side_ == row; }
  PatternCell cell(std::int64_t row, const ShownPart& part, std::int64_t column) const;
  // The key rows that a query sees, as intervals [begin, end) of all key rows.
  std::vector<std::pair<std::int64_t, std::int64_t>> intervals(std::int64_t query) const;

 private:
  std::int64_t cells(std::int64_t count) const { return (count + side_ - 1) / side_; }

  KeyRows keys_;
  Mixer::PairWeight weight_;
  std::int64_t queries_, side_ = 1;
  std::vector<ShownPart> parts_;
};

// One line per row of cells, with the number of its first query.
std::string pattern_text(const PatternView& view);
// A PNG of `scale` pixels per cell. Like the paper's figure 3: the query itself is dark, what it attends to is blue,
// the rest of the past is light grey. A line divides the parts. `query`, unless it is -1, is highlighted.
void write_pattern(const PatternView& view, std::int64_t scale, std::int64_t query, const std::string& path);
std::int64_t pattern_width(const PatternView& view, std::int64_t scale);  // width of the picture in pixels

}  // namespace longstride
