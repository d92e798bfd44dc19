// The order in which a block goes through a run of a band that is too wide for its key tiles to share their queries'
// gradients in shared memory (band_shape.h: most_reach).
//
// Queries come in chunks of 512, whose dQ is in shared memory while the block visits the key tiles, of 128 keys, that
// the chunk sees. A key tile is visited once per chunk that sees it; between visits the sums of its dK and dV are in
// global memory. A run has the queries and the keys of some consecutive chunks. At its beginning it also visits earlier
// keys, for dQ alone, and at its end later queries, for dK and dV alone, so no gradient is written by two blocks.
#pragma once
#include <algorithm>
#include <cstdint>

#include "kernels/attention/sm90/band/band_shape.h"

namespace longstride::kernels::cuda::sm90 {

inline constexpr std::int32_t chunk_tiles = 8, chunk_rows = chunk_tiles * band_rows;
inline constexpr std::int32_t key_tile_rows = 2 * band_rows, chunk_key_tiles = chunk_rows / key_tile_rows;

// A key tile and the queries of one chunk that see it.
struct LongBandVisit {
  std::int32_t key;                     // tile of 128 keys
  std::int32_t query_begin, query_end;  // tiles of 64 queries
  bool has_query_gradient, has_key_gradients;
  bool first, last;  // of the key tile; where has_key_gradients
};

class LongBandWalk {
 public:
  // The chunks [begin, end) of a segment of `length` entries.
  constexpr LongBandWalk(const BandShape& shape, std::int32_t length, std::int32_t begin, std::int32_t end)
      : shape_(shape), length_(length), begin_(begin), end_(end), chunk_(begin) {
    enter();
  }

  constexpr bool more() const { return key_ < key_end_; }
  constexpr void advance() {
    if (++key_ < key_end_) return;
    ++chunk_;
    enter();
  }
  constexpr LongBandVisit visit() const {
    LongBandVisit v = {};
    v.key = key_;
    v.query_begin = larger(chunk_ * chunk_tiles, 2 * key_);
    v.query_end = smaller((chunk_ + 1) * chunk_tiles, end_of_queries(key_));
    v.has_query_gradient = chunk_ < end_;
    v.has_key_gradients = key_ >= begin_ * chunk_key_tiles;
    v.first = key_ / chunk_key_tiles == chunk_;
    v.last = end_of_queries(key_) <= (chunk_ + 1) * chunk_tiles;
    return v;
  }
  // Whether no earlier key tile of the run has given this query tile a gradient.
  constexpr bool is_fresh(std::int32_t query) const { return key_ == key_begin_ || end_of_queries(key_ - 1) <= query; }
  // Of the visit's query tiles, those that see some key of a half of the key tile.
  constexpr void seen_by(std::int32_t half, const LongBandVisit& v, std::int32_t& begin, std::int32_t& end) const {
    const std::int32_t tile = 2 * key_ + half;
    begin = smaller(larger(v.query_begin, tile), v.query_end);
    end = tile * band_rows < length_ ? larger(smaller(shape_.end_tile(tile, length_), v.query_end), begin) : begin;
  }

 private:
  static constexpr std::int32_t smaller(std::int32_t a, std::int32_t b) { return a < b ? a : b; }
  static constexpr std::int32_t larger(std::int32_t a, std::int32_t b) { return a > b ? a : b; }

  // The end of the query tiles that see a key tile.
  constexpr std::int32_t end_of_queries(std::int32_t key) const {
    const std::int32_t second = 2 * key + 1;
    return shape_.end_tile(second * band_rows < length_ ? second : second - 1, length_);
  }
  // The key tiles that the chunk visits: none beyond the run's last queries and keys.
  constexpr void enter() {
    const std::int32_t first = chunk_ * chunk_rows, owned_end = end_ * chunk_rows;
    key_ = key_begin_ = key_end_ = 0;
    if (first >= length_) return;
    key_begin_ = shape_.low(first) / key_tile_rows;
    if (chunk_ < end_) {
      key_end_ = (smaller(first + chunk_rows, length_) + key_tile_rows - 1) / key_tile_rows;
    } else {
      key_begin_ = larger(key_begin_, begin_ * chunk_key_tiles);
      key_end_ = shape_.low(first) < owned_end ? end_ * chunk_key_tiles : key_begin_;
    }
    key_ = key_begin_;
  }

  BandShape shape_;
  std::int32_t length_, begin_, end_;
  std::int32_t chunk_, key_ = 0, key_begin_ = 0, key_end_ = 0;
};

// Chunks after its own in which a key of a segment of this length may be seen.
constexpr std::int32_t later_chunks(const BandShape& shape, std::int32_t length) {
  const std::int32_t chunks = (length + chunk_rows - 1) / chunk_rows;
  const std::int32_t seen = ((shape.block > 0 ? shape.block : shape.window) + chunk_rows - 2) / chunk_rows;
  return seen < chunks - 1 ? seen : chunks - 1;
}

}  // namespace longstride::kernels::cuda::sm90
