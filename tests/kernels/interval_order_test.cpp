// The pairs of tiles of intervals that memory has against their definition, and that blocks that sum dQ in turns never
// wait in a circle.
#include "kernels/attention/sm90/long_band/interval_order.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "tests/kernels/turn_blocks.h"

namespace longstride::kernels::cuda::sm90 {
namespace {

struct IntervalCase {
  std::string name;
  QueryIntervals seen;
  std::vector<std::int32_t> begin, end;  // bounds; none: empty

  BoundsOfHead bounds() const { return begin.empty() ? BoundsOfHead{} : BoundsOfHead{begin.data(), end.data()}; }
};

// Bounds that never decrease. One query in `empty` sees nothing; 0: none.
IntervalCase drawn(std::int32_t n, std::int32_t width, std::int32_t empty, unsigned seed) {
  std::minstd_rand random(seed);
  IntervalCase c{"drawn " + std::to_string(seed), {{n, 0}, {-n, 0}, n}, {}, {}};
  for (std::int32_t i = 0; i < n; ++i) {
    c.begin.push_back(static_cast<std::int32_t>(random() % static_cast<unsigned>(n)));
    c.end.push_back(static_cast<std::int32_t>(random() % static_cast<unsigned>(width)));
  }
  std::sort(c.begin.begin(), c.begin.end());
  for (std::int32_t i = 0; i < n; ++i) {
    const auto at = static_cast<std::size_t>(i);
    const std::int32_t own = empty > 0 && i % empty == 0 ? c.begin[at] : std::min(n, c.begin[at] + c.end[at]);
    c.end[at] = std::max(own, i > 0 ? c.end[at - 1] : 0);
  }
  return c;
}

std::vector<IntervalCase> cases() {
  std::vector<IntervalCase> all;
  for (const std::int32_t n : {1, 64, 65, 129, 500, 1601})
    for (const std::int32_t w : {0, 5, 64, 300, 2000}) all.push_back({"window", {{w, 0}, {-w, 0}, n}, {}, {}});
  for (const std::int32_t n : {1, 65, 500, 1601})
    for (const std::int32_t b : {1, 64, 100, 300, 2000}) {
      all.push_back({"own blocks", {{0, b}, {1 - b, b}, n}, {}, {}});
      all.push_back({"blocks and neighbours", {{b, b}, {1 - 2 * b, b}, n}, {}, {}});
      all.push_back({"the blocks ahead", {{-b, b}, {1 - 2 * b, b}, n}, {}, {}});
      all.push_back({"blocks up to a window", {{7, 0}, {1 - b, b}, n}, {}, {}});
    }
  for (unsigned seed = 1; seed < 40; ++seed)
    all.push_back(drawn(static_cast<std::int32_t>(37 * seed), seed % 3 == 0 ? 5 : 400, seed % 4 == 0 ? 3 : 0, seed));
  IntervalCase nothing{
      "nothing", {{700, 0}, {0, 0}, 700}, std::vector<std::int32_t>(700, 0), std::vector<std::int32_t>(700, 0)},
      late{
          "late", {{700, 0}, {-700, 0}, 700}, std::vector<std::int32_t>(700, 650), std::vector<std::int32_t>(700, 660)};
  all.push_back(nothing);
  all.push_back(late);
  return all;
}

// The order of a case, with its numbers.
struct Made {
  std::vector<std::int32_t> first, last;
  IntervalOrder order;

  Made(const IntervalCase& c, std::int32_t key_rows) {
    const std::int32_t tiles = (c.seen.n + band_rows - 1) / band_rows;
    for (std::int32_t t = 0; t < tiles; ++t) {
      const KeyTileRange keys(c.seen, c.bounds(), t, tiles, key_rows);
      first.push_back(keys.first);
      last.push_back(keys.last);
    }
    order = {first.data(), last.data(), tiles, (c.seen.n + key_rows - 1) / key_rows};
  }
};

TEST(QueryIntervals, AreTheSameFromBothSides) {
  for (const IntervalCase& c : cases()) {
    if (c.bounds().given()) continue;
    for (std::int32_t j = 0; j < c.seen.n; ++j) {
      const std::int32_t first = c.seen.first_query(j, {}), beyond = c.seen.beyond_query(j, {});
      for (std::int32_t i = 0; i < c.seen.n; ++i) {
        const bool seen = c.seen.low.of(i) <= j && j <= c.seen.high.of(i);
        ASSERT_EQ(seen, c.seen.begin(i, {}) <= j && j < c.seen.end(i, {})) << c.name << ", " << i << ", " << j;
        ASSERT_EQ(seen, first <= i && i < beyond) << c.name << ", " << i << ", " << j;
      }
    }
  }
}

TEST(IntervalOrders, GiveEveryPairToATask) {
  for (const IntervalCase& c : cases())
    for (const std::int32_t key_rows : {128, 192}) {
      const Made made(c, key_rows);
      for (std::int32_t i = 0; i < c.seen.n; ++i) {
        const std::int32_t begin = c.seen.begin(i, c.bounds()), end = c.seen.end(i, c.bounds());
        if (begin >= end) continue;
        const auto tile = static_cast<std::size_t>(i / band_rows);
        ASSERT_LE(made.first[tile], begin / key_rows) << c.name << ", query " << i;
        ASSERT_GE(made.last[tile], (end - 1) / key_rows) << c.name << ", query " << i;
      }
    }
}

TEST(IntervalOrders, AreTheSameFromBothSides) {
  for (const IntervalCase& c : cases())
    for (const std::int32_t key_rows : {128, 192}) {
      const Made made(c, key_rows);
      const IntervalOrder& order = made.order;
      for (std::int32_t key = 0; key < order.key_tiles; ++key) {
        const std::int32_t begin = order.begin_of(key), end = order.end_of(key);
        ASSERT_LT(begin, end) << c.name << ": a key tile without a query tile has no gradient";
        for (std::int32_t query = 0; query < order.query_tiles; ++query) {
          const auto at = static_cast<std::size_t>(query);
          const bool seen = made.first[at] <= key && key <= made.last[at];
          ASSERT_EQ(seen, begin <= query && query < end) << c.name << ", tiles " << key << ", " << query;
          if (!seen) continue;
          // As tasks know it, from their neighbours.
          EXPECT_EQ(order.turn(key, query) == 0, query >= order.end_of(key - 1));
          EXPECT_EQ(order.is_last(key, query), query < order.begin_of(key + 1));
        }
      }
    }
}

TEST(IntervalOrders, NeverWaitInACircle) {
  for (const IntervalCase& c : cases())
    for (const std::size_t blocks : {1, 3, 16}) {
      const Made made(c, 128);
      const TurnRing ring{.lanes = 2,
                          .ring = made.order.query_tiles,
                          .tiles = made.order.query_tiles,
                          .most_turns = static_cast<std::uint32_t>(made.order.key_tiles + 2)};
      EXPECT_TRUE((TurnBlocks<IntervalOrder>(made.order, ring, 3, blocks).run())) << c.name;
    }
}

}  // namespace
}  // namespace longstride::kernels::cuda::sm90
