// The pairs of tiles where every query sees one interval of keys, a closed form clamped by what is read from memory
// (pattern/row_bounds.h), and the order in which blocks sum dQ over them in turns, as host code.
//
// Neither end of an interval decreases along a row. So the key tiles that a query tile sees are consecutive, and so are
// the query tiles that see a key tile: two numbers per query tile, made before the kernel begins, say both. Every query
// tile has at least one key tile and every key tile a query tile, even where all of the pair is masked: so that each
// row of dQ, dK and dV has one writer.
#pragma once
#include <algorithm>
#include <cstdint>

#include "kernels/attention/pattern/plan.h"
#include "kernels/attention/pattern/row_bounds.h"
#include "kernels/attention/sm90/band/band_shape.h"
#include "kernels/attention/sm90/general/geometry.h"

namespace longstride::kernels::cuda::sm90 {

// The keys that query i sees: [low of i, high of i] within its bounds. The plan's limits keep all sums far below 2^31.
struct QueryIntervals {
  Limit low, high;
  std::int32_t n = 0;

  LONGSTRIDE_HOST_DEVICE std::int32_t begin(std::int32_t i, const BoundsOfHead& bounds) const {
    const std::int32_t first = within(low.of(i));
    return bounds.given() && bounds.begin[i] > first ? bounds.begin[i] : first;
  }
  LONGSTRIDE_HOST_DEVICE std::int32_t end(std::int32_t i, const BoundsOfHead& bounds) const {
    const std::int32_t beyond = within(high.of(i) + 1);
    return bounds.given() && bounds.end[i] < beyond ? bounds.end[i] : beyond;
  }
  // The queries that see key j; bounds: as seen from the keys.
  LONGSTRIDE_HOST_DEVICE std::int32_t first_query(std::int32_t j, const BoundsOfHead& bounds) const {
    const std::int32_t first = within(beyond_at_most(high, j - 1));
    return bounds.given() && bounds.begin[j] > first ? bounds.begin[j] : first;
  }
  LONGSTRIDE_HOST_DEVICE std::int32_t beyond_query(std::int32_t j, const BoundsOfHead& bounds) const {
    const std::int32_t beyond = within(beyond_at_most(low, j));
    return bounds.given() && bounds.end[j] < beyond ? bounds.end[j] : beyond;
  }

 private:
  LONGSTRIDE_HOST_DEVICE std::int32_t within(std::int32_t x) const { return x < 0 ? 0 : x < n ? x : n; }
  // Queries i >= 0 with limit.of(i) <= j are those below it: floor(i / block) * block <= j + back.
  LONGSTRIDE_HOST_DEVICE static std::int32_t beyond_at_most(const Limit& limit, std::int32_t j) {
    const std::int32_t reach = j + limit.back;
    if (reach < 0) return 0;
    return limit.block > 0 ? (reach / limit.block + 1) * limit.block : reach + 1;
  }
};

// Heads whose blocks see another block instead of their own: their keys are counted from that of block 0 on, and behind
// the last one from the first one on. So all of them see intervals alike. Blocks are whole tiles.
struct KeyRotation {
  std::int32_t tiles[Geometry::most_heads] = {};  // by which each head's keys are rotated

  // The tile in memory of a head's tile, of `all`; tiles beyond these stay there.
  LONGSTRIDE_HOST_DEVICE std::int32_t tile_of(std::int32_t head, std::int32_t tile, std::int32_t all) const {
    const std::int32_t at = tile + tiles[head];
    return tile < all && at >= all ? at - all : at;
  }
};

// One head of one sequence, or all of them without bounds. The key tiles of query tile t are [first[t], last[t]].
struct IntervalOrder {
  const std::int32_t *first = nullptr, *last = nullptr;
  std::int32_t query_tiles = 0, key_tiles = 0;

  LONGSTRIDE_HOST_DEVICE std::int32_t tasks() const { return key_tiles; }
  LONGSTRIDE_HOST_DEVICE std::int32_t begin_of(std::int32_t key) const {
    return first_above(last, query_tiles, key - 1);
  }
  LONGSTRIDE_HOST_DEVICE std::int32_t end_of(std::int32_t key) const { return first_above(first, query_tiles, key); }
  LONGSTRIDE_HOST_DEVICE std::int32_t turn(std::int32_t key, std::int32_t query) const { return key - first[query]; }
  LONGSTRIDE_HOST_DEVICE bool is_last(std::int32_t key, std::int32_t query) const { return last[query] == key; }
};

// Makes them: the key tiles of query tile `tile`.
struct KeyTileRange {
  std::int32_t first, last;

  LONGSTRIDE_HOST_DEVICE KeyTileRange(const QueryIntervals& seen, const BoundsOfHead& bounds, std::int32_t tile,
                                      std::int32_t query_tiles, std::int32_t key_rows) {
    const std::int32_t most = (seen.n + key_rows - 1) / key_rows - 1;
    const auto first_of = [&](std::int32_t t) {
      const std::int32_t key = t == 0 ? 0 : seen.begin(t * band_rows, bounds) / key_rows;
      return key < most ? key : most;
    };
    const std::int32_t beyond = (tile + 1) * band_rows < seen.n ? (tile + 1) * band_rows : seen.n;
    const std::int32_t end = seen.end(beyond - 1, bounds);
    first = first_of(tile);
    last = end > 0 ? (end - 1) / key_rows : 0;
    // Key tiles between what this and the next query tile see belong to this one.
    const std::int32_t before_next = tile + 1 == query_tiles ? most : first_of(tile + 1) - 1;
    last = last > before_next ? last : before_next;
    last = last > first ? last : first;
  }
};

}  // namespace longstride::kernels::cuda::sm90
