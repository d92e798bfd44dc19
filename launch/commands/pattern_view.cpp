#include "launch/commands/pattern_view.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "launch/console/canvas.h"

namespace longstride {
namespace {

constexpr std::int64_t border = 2;  // pixels between the parts

char symbol_of(const PatternCell& cell) {
  if (cell.pairs == 0) return ' ';
  if (cell.seen == 0) return '.';
  return !cell.whole() ? '+' : cell.own ? '@' : '#';
}

Color mixed(Color from, Color to, double share) {
  for (std::size_t c = 0; c < from.size(); ++c)
    from[c] = static_cast<std::uint8_t>(std::lround(from[c] + (to[c] - from[c]) * share));
  return from;
}

Color color_of(const PatternCell& cell, bool lit) {
  constexpr Color future = {255, 255, 255}, unseen = {232, 234, 240}, seen = {70, 120, 210}, faint = {180, 202, 238},
                  own = {20, 36, 90};
  if (cell.pairs == 0) return future;
  return mixed(unseen, !lit ? faint : cell.own ? own : seen, cell.weight / static_cast<double>(cell.pairs));
}

}  // namespace

PatternView::PatternView(const KeyRows& keys, Mixer::PairWeight weight, std::int64_t queries, bool cropped)
    : keys_(keys), weight_(std::move(weight)), queries_(queries) {
  const auto add = [&](const char* name, std::int64_t begin, std::int64_t rows, bool first) {
    if (rows == 0) return;
    const std::int64_t shown = cropped ? std::min(rows, queries) : rows;
    parts_.push_back({name, first ? begin : begin + rows - shown, first ? begin + shown : begin + rows, rows});
  };
  add("compressed memory", 0, keys_.compressed, false);
  add("memory", keys_.compressed, keys_.memory, false);
  add("added rows", keys_.compressed + keys_.memory, keys_.added, true);
  add("segment", keys_.before(), keys_.segment, true);
}

void PatternView::fit(std::int64_t columns_that_fit) {
  while (columns() > columns_that_fit) ++side_;
}

std::int64_t PatternView::columns() const {
  std::int64_t all = 0;
  for (const ShownPart& part : parts_) all += columns(part);
  return all;
}

PatternCell PatternView::cell(std::int64_t row, const ShownPart& part, std::int64_t column) const {
  PatternCell out;
  const std::int64_t first = part.begin + column * side_, end = std::min(part.end, first + side_);
  for (std::int64_t i = row * side_; i < std::min(queries_, (row + 1) * side_); ++i)
    for (std::int64_t j = first; j < std::min(end, keys_.end_of(i)); ++j) {
      const double weight = weight_(i, j);
      ++out.pairs;
      out.seen += weight > 0 ? 1 : 0;
      out.weight += weight;
      out.own = side_ == 1 && j == keys_.before() + i;
    }
  return out;
}

std::vector<std::pair<std::int64_t, std::int64_t>> PatternView::intervals(std::int64_t query) const {
  std::vector<std::pair<std::int64_t, std::int64_t>> out;
  const std::int64_t end = keys_.end_of(query);
  for (std::int64_t j = 0; j < end; ++j) {
    if (weight_(query, j) == 0) continue;
    const std::int64_t begin = j;
    while (j < end && weight_(query, j) > 0) ++j;
    out.emplace_back(begin, j);
  }
  return out;
}

std::string pattern_text(const PatternView& view) {
  std::string out;
  for (std::int64_t row = 0; row < view.rows(); ++row) {
    std::string line;
    for (const ShownPart& part : view.parts()) {
      if (&part != view.parts().data()) line += '|';
      for (std::int64_t column = 0; column < view.columns(part); ++column)
        line += symbol_of(view.cell(row, part, column));
    }
    line.erase(line.find_last_not_of(' ') + 1);
    out += fmt::format("{:>4} {}\n", row * view.side(), line);
  }
  return out;
}

std::int64_t pattern_width(const PatternView& view, std::int64_t scale) {
  return view.columns() * scale + (std::ssize(view.parts()) - 1) * border;
}

void write_pattern(const PatternView& view, std::int64_t scale, std::int64_t query, const std::string& path) {
  constexpr Color border_color = {232, 96, 32};
  Canvas canvas(view.rows() * scale, pattern_width(view, scale), border_color);
  std::int64_t x = 0;
  for (const ShownPart& part : view.parts()) {
    for (std::int64_t row = 0; row < view.rows(); ++row)
      for (std::int64_t column = 0; column < view.columns(part); ++column)
        canvas.fill(row * scale, x + column * scale, scale, scale,
                    color_of(view.cell(row, part, column), query < 0 || view.has_row_of(row, query)));
    x += view.columns(part) * scale + border;
  }
  canvas.write(path);
}

}  // namespace longstride
