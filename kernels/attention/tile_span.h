// Which tiles of a part hold an allowed pair, by closed form. In a part every query row has one interval of the key
// stream and its ends never decrease from row to row, so the first and the last row of a tile say everything. The CPU
// writes these down as the plan's lists; CUDA kernels evaluate them where they need them, so that a plan of a million
// positions needs no memory and no copy.
#pragma once
#include <cstdint>

#include "kernels/attention/plan.h"

namespace longstride::kernels {

// Tiles [begin, end) hold an allowed pair; those of [full_begin, full_end) hold no other. All four never decrease
// from row to row.
struct TileSpan {
  std::int32_t begin = 0, full_begin = 0, full_end = 0, end = 0;
};

constexpr std::int32_t tiles_in(std::int32_t length, std::int32_t tile) { return (length + tile - 1) / tile; }

// The key tiles of query tile `index`. `queries` and `keys` are the streams of one segment.
constexpr TileSpan key_tiles_of(const Part& part, const Stream& queries, const Stream& keys, TileShape tile,
                                std::int32_t index) {
  const std::int32_t begin = index * tile.queries;
  if (begin >= queries.length) return {};
  const std::int32_t end = begin + tile.queries < queries.length ? begin + tile.queries : queries.length;
  const Interval first = part.interval(keys, queries.position(begin));
  const Interval last = part.interval(keys, queries.position(end - 1));
  const bool to_the_end = first.end == keys.length;  // a ragged last tile is full all the same
  return {first.begin / tile.keys, tiles_in(last.begin, tile.keys),
          to_the_end ? tiles_in(first.end, tile.keys) : first.end / tile.keys, tiles_in(last.end, tile.keys)};
}

// The query tiles of key tile `index`: the rows q whose span has it. As the ends never decrease, these are an interval,
// found by bisection, and so are the full ones.
constexpr TileSpan query_tiles_of(const Part& part, const Stream& queries, const Stream& keys, TileShape tile,
                                  std::int32_t index) {
  const std::int32_t rows = tiles_in(queries.length, tile.queries);
  const auto first_beyond = [&](std::int32_t TileSpan::*end) {  // the first row whose `end` is above index
    std::int32_t low = 0, high = rows;
    while (low < high) {
      const std::int32_t middle = low + (high - low) / 2;
      if (key_tiles_of(part, queries, keys, tile, middle).*end > index)
        high = middle;
      else
        low = middle + 1;
    }
    return low;
  };
  return {first_beyond(&TileSpan::end), first_beyond(&TileSpan::full_end), first_beyond(&TileSpan::full_begin),
          first_beyond(&TileSpan::begin)};
}

}  // namespace longstride::kernels
