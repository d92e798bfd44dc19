// The tiles of a part that hold an allowed pair, by closed form. In a part every query row has one interval of the key
// row set, whose ends never decrease from row to row, so the first and the last row of a tile determine its span.
// Kernels evaluate spans where they need them, so a plan of a million positions takes no time, no memory and no copy.
#pragma once
#include <cstdint>

#include "kernels/attention/pattern/plan.h"

namespace longstride::kernels {

// Tiles [begin, end) hold an allowed pair; in [full_begin, full_end) all pairs are allowed. None of the four ever
// decreases from row to row.
struct TileSpan {
  std::int32_t begin = 0, full_begin = 0, full_end = 0, end = 0;
};

constexpr std::int32_t tiles_in(std::int32_t length, std::int32_t tile) { return (length + tile - 1) / tile; }

// The key tiles of query tile `index`. `queries` and `keys` are the row sets of one class, and `interval` gives the
// entries of `keys` that the query at a position sees: those of a part, or what bounds leave of them.
template <class F>
constexpr TileSpan key_tiles_by(const F& interval, const RowSet& queries, const RowSet& keys, TileShape tile,
                                std::int32_t index) {
  const std::int32_t begin = index * tile.queries;
  if (begin >= queries.length) return {};
  const std::int32_t end = begin + tile.queries < queries.length ? begin + tile.queries : queries.length;
  const Interval first = interval(queries.position(begin)), last = interval(queries.position(end - 1));
  const bool to_the_end = first.end == keys.length;  // a ragged last tile counts as full
  const bool beyond = first.begin == keys.length;    // no row sees a key
  return {beyond ? tiles_in(keys.length, tile.keys) : first.begin / tile.keys, tiles_in(last.begin, tile.keys),
          to_the_end ? tiles_in(first.end, tile.keys) : first.end / tile.keys, tiles_in(last.end, tile.keys)};
}

// The query tiles of key tile `index`: those whose span contains it. Since the ends never decrease, they form an
// interval, found by bisection, and so do the full ones.
template <class F>
constexpr TileSpan query_tiles_by(const F& interval, const RowSet& queries, const RowSet& keys, TileShape tile,
                                  std::int32_t index) {
  const std::int32_t rows = tiles_in(queries.length, tile.queries);
  const auto first_beyond = [&](std::int32_t TileSpan::*end) {  // the first row whose `end` is above index
    std::int32_t low = 0, high = rows;
    while (low < high) {
      const std::int32_t middle = low + (high - low) / 2;
      if (key_tiles_by(interval, queries, keys, tile, middle).*end > index)
        high = middle;
      else
        low = middle + 1;
    }
    return low;
  };
  return {first_beyond(&TileSpan::end), first_beyond(&TileSpan::full_end), first_beyond(&TileSpan::full_begin),
          first_beyond(&TileSpan::begin)};
}

// The same for a part alone.
constexpr TileSpan key_tiles_of(const Part& part, const RowSet& queries, const RowSet& keys, TileShape tile,
                                std::int32_t index) {
  return key_tiles_by([&](std::int32_t i) { return part.interval(keys, i); }, queries, keys, tile, index);
}
constexpr TileSpan query_tiles_of(const Part& part, const RowSet& queries, const RowSet& keys, TileShape tile,
                                  std::int32_t index) {
  return query_tiles_by([&](std::int32_t i) { return part.interval(keys, i); }, queries, keys, tile, index);
}

// The blocks of rows, strictly increasing, whose tiles are visited; all tiles are where no list is given.
struct BlockList {
  const std::int32_t* next = nullptr;
  std::int32_t left = 0;
  std::int32_t rows = 0;  // in a block; 0: no list

  constexpr bool given() const { return rows > 0; }
};

// The tiles of a span in increasing order, or of these only those of listed blocks, which are whole tiles of `rows`.
class TileWalk {
 public:
  constexpr TileWalk() = default;
  constexpr explicit TileWalk(const TileSpan& span) : span_(span), at_(span.begin), stop_(span.end) {}
  constexpr TileWalk(const TileSpan& span, const BlockList& list, std::int32_t rows) : TileWalk(span) {
    if (!list.given()) return;
    next_ = list.next;
    left_ = list.left;
    tiles_ = list.rows / rows;
    stop_ = at_;
    enter_block();
  }
  constexpr bool more() const { return at_ < stop_; }
  constexpr std::int32_t tile() const { return at_; }
  constexpr bool full() const { return at_ >= span_.full_begin && at_ < span_.full_end; }
  constexpr void advance() {
    if (++at_ >= stop_) enter_block();
  }

 private:
  constexpr void enter_block() {
    for (; at_ >= stop_ && left_ > 0; --left_) {
      const std::int32_t begin = *next_++ * tiles_, end = begin + tiles_;
      at_ = begin > at_ ? begin : at_;
      stop_ = end < span_.end ? end : span_.end;
    }
  }

  TileSpan span_;
  std::int32_t at_ = 0, stop_ = 0, tiles_ = 1;  // [at, stop): what is left of the block
  const std::int32_t* next_ = nullptr;
  std::int32_t left_ = 0;
};

}  // namespace longstride::kernels
