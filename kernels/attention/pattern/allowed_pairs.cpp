// The paper's operation count: |window| + |other part| - |both|, each by closed form or a sum over blocks.
#include <algorithm>

#include "kernels/attention/pattern/pattern.h"
#include "kernels/attention/pattern/random_blocks.h"

namespace longstride::kernels {

namespace {

std::int64_t triangle(std::int64_t m) { return m * (m + 1) / 2; }

// The sum of min(max(x, 0), most) over x < end.
std::int64_t ramp(std::int64_t end, std::int64_t most) {
  const std::int64_t rising = std::clamp<std::int64_t>(end, 0, most);
  return triangle(rising - 1) + (end > most ? (end - most) * most : 0);
}

// The counts of one head: `queries` rows of queries and n of keys.
class Pairs {
 public:
  Pairs(const PatternConfig& pattern, std::int64_t head, std::int64_t queries, std::int64_t n)
      : pattern_(pattern), head_(head), queries_(queries), n_(n), l_(pattern.stride), all_{std::max(queries, n), 0} {
    if (pattern.direction == Direction::both) all_.ahead = all_.behind;
  }

  std::int64_t of_window(PartKind window) const {
    if (window == PartKind::dilated) return in_columns(sides(window), dilation_of(pattern_, head_));
    if (window == PartKind::block_window) return of_block_window(n_);
    if (window == PartKind::shifted_block) return of_shifted_blocks();
    if (window == PartKind::fixed_block) {
      const std::int64_t whole = std::min(queries_, n_) / l_, rows = std::min(l_, queries_ - whole * l_),
                         keys = std::min(l_, n_ - whole * l_);
      return pattern_.direction == Direction::past ? whole * triangle(l_) + triangle(keys)
                                                   : whole * l_ * l_ + rows * keys;
    }
    return band(sides(window), queries_, 0, n_);
  }

  // Pairs of all parts, which lists join.
  std::int64_t of_lists(std::int64_t layer) const {
    const KeyBlocks lists = key_blocks(pattern_, layer, head_, blocks_in(n_, pattern_.block));
    const auto rows = [&](std::int64_t b) { return std::min(pattern_.block, n_ - b * pattern_.block); };
    std::int64_t pairs = 0;
    for (std::int64_t b = 0; b < std::ssize(lists); ++b)
      for (const std::int32_t c : lists[static_cast<std::size_t>(b)]) pairs += rows(b) * rows(c);
    return pairs;
  }

  // Pairs allowed by both `window` (dense: all pairs) and `rest`.
  std::int64_t common(PartKind window, PartKind rest) const {
    if (rest == PartKind::column && window == PartKind::fixed_block) return std::min(queries_, n_);
    if (rest == PartKind::column) return in_columns({sides(window).behind / l_, sides(window).ahead / l_}, l_);
    if (rest == PartKind::first) {
      const std::int64_t end = std::min(pattern_.first, n_);
      if (window == PartKind::block_window) return of_block_window(end);
      if (window != PartKind::fixed_block) return band(sides(window), queries_, 0, end);
      std::int64_t pairs = 0;
      for (std::int64_t b = 0; b < end; b += l_) pairs += of_keys(window, b, b, std::min(b + l_, end));
      return pairs;
    }
    const SubBlock block = sub_block_of(pattern_, head_);
    const bool inclusive = pattern_.summary_inclusive && block.begin > 0;
    std::int64_t pairs = 0;
    for (std::int64_t b = 0; b < n_; b += l_)
      pairs += of_keys(window, b, b + block.begin, b + block.begin + block.width) +
               (inclusive ? of_keys(window, b, b, b + 1) : 0);
    return pairs;
  }

 private:
  // Those of a window without what lies beyond the ends, so that products fit.
  Sides sides(PartKind window) const {
    if (!reads_window(window)) return all_;
    const Sides given = window_sides(pattern_);
    return {std::min(given.behind, all_.behind), std::min(given.ahead, std::max(queries_, n_))};
  }

  // Pairs of queries below `queries` and keys [begin, end) with -ahead <= i - j <= behind.
  static std::int64_t band(const Sides& s, std::int64_t queries, std::int64_t begin, std::int64_t end) {
    const auto of_first = [&](std::int64_t keys) {  // those of the first keys: i <= j + behind, but not i < j - ahead
      return ramp(keys + s.behind + 1, queries) - ramp(s.behind + 1, queries) - ramp(keys - s.ahead, queries);
    };
    return of_first(end) - of_first(begin);
  }

  // The same for keys [begin, end) of the block at b, and within the block if the window is one.
  std::int64_t of_keys(PartKind window, std::int64_t b, std::int64_t begin, std::int64_t end) const {
    begin = std::min(begin, n_), end = std::min(end, n_);
    if (window != PartKind::fixed_block) return band(sides(window), queries_, begin, end);
    return band(all_, std::min(queries_, b + l_), begin, end) - band(all_, std::min(queries_, b), begin, end);
  }

  // Pairs of the first keys with queries of their own block and its neighbours, block by block.
  std::int64_t of_block_window(std::int64_t keys) const {
    const std::int64_t block = std::min(pattern_.block, std::max(queries_, n_));
    std::int64_t pairs = 0;
    for (std::int64_t b = 0; b < keys; b += block) {
      const std::int64_t first = pattern_.direction == Direction::both ? std::max<std::int64_t>(b - block, 0) : b;
      const std::int64_t end = std::min(b + block, keys);
      pairs += band(all_, std::min(queries_, b + 2 * block), b, end) - band(all_, std::min(queries_, first), b, end);
    }
    return pairs;
  }

  std::int64_t of_shifted_blocks() const {
    const EvenBlocks blocks(pattern_, std::max(queries_, n_));
    const auto rows = [&](std::int64_t block, std::int64_t all) {
      return std::clamp<std::int64_t>(all - block * blocks.length, 0, blocks.length);
    };
    std::int64_t pairs = 0;
    for (std::int64_t b = 0; b < blocks.count; ++b)
      pairs += rows(b, queries_) * rows(blocks.seen_by(b * blocks.length, shift_of(pattern_, head_)), n_);
    return pairs;
  }

  // A band of every residue class of l, in its entries: n mod l classes have one key more than the others, and so with
  // queries.
  std::int64_t in_columns(const Sides& of_class, std::int64_t l) const {
    const std::int64_t ends[] = {0, std::min(queries_ % l, n_ % l), std::max(queries_ % l, n_ % l), l};
    std::int64_t pairs = 0;
    for (int i = 0; i < 3; ++i) {
      const auto entries = [&](std::int64_t rows) { return rows / l + (ends[i] < rows % l ? 1 : 0); };
      pairs += (ends[i + 1] - ends[i]) * band(of_class, entries(queries_), 0, entries(n_));
    }
    return pairs;
  }

  const PatternConfig& pattern_;
  std::int64_t head_, queries_, n_, l_;
  Sides all_;  // every pair of the direction
};

}  // namespace

std::int64_t allowed_pairs(const PatternConfig& pattern, std::int64_t layer, std::int64_t heads, std::int64_t head,
                           std::int64_t n, std::int64_t queries) {
  const Pairs count(pattern, head, queries > 0 ? queries : n, n);
  if (has_lists(pattern, layer, heads)) return count.of_lists(layer);
  const auto is_window = [](PartKind kind) {
    return kind != PartKind::column && kind != PartKind::fixed_summary && kind != PartKind::first;
  };
  PartKind window = PartKind::dense;
  std::int64_t pairs = 0;
  const std::vector<PartKind> parts = parts_of(pattern, layer, heads, head);
  for (const PartKind kind : parts)
    if (is_window(kind)) {
      window = kind;
      pairs += count.of_window(kind);
    }
  for (const PartKind kind : parts)
    if (!is_window(kind)) {
      pairs += count.common(PartKind::dense, kind);
      if (window != PartKind::dense) pairs -= count.common(window, kind);
    }
  return pairs;
}

}  // namespace longstride::kernels
