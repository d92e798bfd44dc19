// The pairs of tiles of a long band against its definition, and that blocks that sum dQ in turns never wait in a
// circle.
#include "kernels/attention/sm90/long_band/long_band_order.h"

#include <gtest/gtest.h>

#include <map>
#include <set>
#include <string>
#include <vector>

#include "kernels/attention/choice.h"
#include "tests/kernels/attention_patterns.h"
#include "tests/kernels/turn_blocks.h"

namespace longstride::kernels::cuda::sm90 {
namespace {

std::string text_of(const LongBandOrder& order) {
  return "window " + std::to_string(order.shape.window) + ", block " + std::to_string(order.shape.block) + ", length " +
         std::to_string(order.length) + ", strips " + std::to_string(order.strips);
}
bool sees(const LongBandOrder& order, std::int32_t query, std::int32_t key) {
  return key <= query && query < order.shape.beyond(key);
}

std::vector<LongBandOrder> walks() {
  std::vector<LongBandOrder> all;
  for (const std::int32_t length : {1, 64, 65, 127, 128, 129, 191, 192, 193, 321, 500, 1000, 1601})
    for (const BandShape& shape : {BandShape{.window = 1},
                                   {.window = 2},
                                   {.window = 64},
                                   {.window = 65},
                                   {.window = 320},
                                   {.window = 513},
                                   {.window = 1024},
                                   {.window = 1601},
                                   {.window = 0, .block = 100},
                                   {.window = 0, .block = 330},
                                   {.window = 0, .block = 512}})
      for (const std::int32_t strips : {2, 3}) all.push_back({shape, length, strips});
  return all;
}

TEST(LongBandOrder, GivesEveryPairToOneTask) {
  for (const LongBandOrder& order : walks()) {
    std::set<std::pair<std::int32_t, std::int32_t>> seen;  // pairs of tiles of 64
    for (std::int32_t query = 0; query < order.length; ++query)
      for (std::int32_t key = order.shape.low(query); key <= query; ++key) {
        ASSERT_TRUE(sees(order, query, key)) << text_of(order);
        seen.insert({query / band_rows, key / band_rows});
      }
    std::set<std::pair<std::int32_t, std::int32_t>> given;
    for (std::int32_t key = 0; key < order.key_tiles(); ++key)
      for (std::int32_t strip = 0; strip < order.strips; ++strip) {
        const std::int32_t begin = order.begin_of(key, strip), end = order.end_of(key, strip);
        // A warpgroup skips the task's tiles after its own, and before them.
        ASSERT_LE(order.begin_of(key), begin) << text_of(order);
        ASSERT_LE(begin, end) << text_of(order);
        ASSERT_LE(end, order.end_of(key)) << text_of(order);
        for (std::int32_t query = begin; query < end; ++query)
          ASSERT_TRUE(given.insert({query, order.strips * key + strip}).second) << text_of(order);
      }
    ASSERT_EQ(given, seen) << text_of(order);
  }
}

TEST(LongBandOrder, KeyTilesOfAQueryTileAreNeighbours) {
  for (const LongBandOrder& order : walks()) {
    std::map<std::int32_t, std::vector<std::int32_t>> keys;  // per query tile
    for (std::int32_t key = 0; key < order.key_tiles(); ++key)
      for (std::int32_t query = order.begin_of(key); query < order.end_of(key); ++query) keys[query].push_back(key);
    ASSERT_EQ(static_cast<std::int32_t>(keys.size()), (order.length + band_rows - 1) / band_rows) << text_of(order);
    for (const auto& [query, of_query] : keys) {
      ASSERT_EQ(of_query.front(), order.first_key(query)) << text_of(order);
      ASSERT_EQ(of_query.back(), order.last_key(query)) << text_of(order);
      ASSERT_EQ(static_cast<std::int32_t>(of_query.size()), of_query.back() - of_query.front() + 1) << text_of(order);
    }
  }
}

LongBandPlan planned(const LongBandOrder& order, std::int32_t classes) {
  LongBandPlan plan;
  plan.head = order.strips == 3 ? 32 : 64;
  plan.band.shape = order.shape;
  plan.band.set = {0, order.length, order.length, order.length};
  plan.band.n = order.length;
  plan.band.classes = 1;
  plan.band.heads = classes;
  const std::int32_t tiles = tiles_in(order.length, band_rows), block = order.shape.block;
  plan.band.reach = std::min(block > 0 ? tiles_in(block, band_rows) + (block % band_rows == 0 ? 0 : 1)
                                       : (std::min(order.shape.window, order.length) + 2 * band_rows - 2) / band_rows,
                             tiles);
  plan.classes = classes;
  plan.in_turns = true;
  lay_out_turns(plan);
  return plan;
}

TEST(TurnRing, BlocksNeverWaitInACircle) {
  for (const LongBandOrder& order : walks())
    for (const std::int32_t classes : {1, 3, 20})
      for (const std::size_t blocks : {1, 7, 132}) {
        LongBandPlan plan = planned(order, classes);
        EXPECT_TRUE(TurnBlocks(order, plan.ring, classes, blocks).run()) << text_of(order);
        // The smallest ring, and fewer lanes.
        plan.ring.ring = std::min(plan.ring.tiles, plan.band.reach + order.strips + 1);
        plan.ring.lanes = std::min(plan.ring.lanes, 2);
        EXPECT_TRUE(TurnBlocks(order, plan.ring, classes, blocks).run()) << text_of(order);
        if (::testing::Test::HasFailure()) return;
      }
}

class LongBandPlans : public ::testing::Test {
 protected:
  bool finds(const PatternConfig& pattern, std::int64_t heads, std::int64_t n, std::int64_t batch,
             std::int64_t size = 64) {
    const auto made = make_plan(pattern, 0, heads, n);
    const AttentionChoice choice = choose_backward({made.get(), batch, size, size});
    plan_ = choice.long_band;
    return choice.family == (plan_.in_turns ? AttentionFamily::turns : AttentionFamily::classes);
  }
  LongBandPlan plan_;
};
constexpr auto merged = Integration::merged;
using enum PartKind;

TEST_F(LongBandPlans, GiveABlockEachShortResidueClass) {
  EXPECT_TRUE(finds(pattern_of(merged, {column}, 512), 8, 262144, 1));
  EXPECT_FALSE(plan_.in_turns);
  EXPECT_EQ(plan_.tasks(), 8 * 512);
  EXPECT_EQ(plan_.scratch_bytes(), 0u);
  EXPECT_TRUE(finds(pattern_of(merged, {dense}, 0), 8, 512, 12));
  EXPECT_FALSE(plan_.in_turns);
  EXPECT_TRUE(finds(pattern_of(merged, {dense}, 0), 8, 512, 6));
  EXPECT_TRUE(plan_.in_turns) << "84 of 132 blocks would be idle";
}

TEST_F(LongBandPlans, TakeTurnsInLongClasses) {
  for (const auto& [pattern, n] : {std::pair{pattern_of(merged, {local}, 512), 262144},
                                   {pattern_of(merged, {column}, 512), 1048576},
                                   {pattern_of(merged, {dense}, 0), 12288},
                                   {pattern_of(merged, {dense}, 0), 32768}}) {
    EXPECT_TRUE(finds(pattern, 8, n, 1));
    EXPECT_TRUE(plan_.in_turns);
    EXPECT_LE(plan_.sums_bytes(), turn_cache_bytes) << "the sums stay in the second-level cache";
    EXPECT_GE(plan_.ring.lanes * plan_.groups, plan_.classes);
    EXPECT_LT(plan_.ring.lanes * (plan_.groups - 1), plan_.classes) << "no group is empty";
  }
}

TEST_F(LongBandPlans, HaveThreeStripsPerKeyTileAt32) {
  for (const auto& [size, key_tiles] : {std::pair{24, 64}, {32, 64}, {40, 96}, {64, 96}, {128, 96}}) {
    EXPECT_TRUE(finds(pattern_of(merged, {dense}, 0), 8, 12288, 1, size));
    EXPECT_EQ(plan_.order().key_tiles(), key_tiles);
    EXPECT_EQ(plan_.tasks(), 8 * key_tiles);
  }
}

// Above 64 every class takes turns, and so do narrow bands, as they have no kernels of their own.
TEST_F(LongBandPlans, PadHeadsTo32To64AndTo128) {
  for (const auto& [size, head] : {std::pair{24, 32}, {32, 32}, {40, 64}, {64, 64}, {72, 128}, {128, 128}}) {
    EXPECT_TRUE(finds(pattern_of(merged, {dense}, 0), 8, 12288, 4, size));
    EXPECT_EQ(plan_.head, head);
    EXPECT_EQ(plan_.sums_bytes(), plan_.slots() * 64 * static_cast<std::size_t>(head) * sizeof(float));
    EXPECT_LE(plan_.sums_bytes(), turn_cache_bytes);
  }
  EXPECT_TRUE(finds(pattern_of(merged, {column}, 512), 8, 262144, 1, 128));
  EXPECT_TRUE(plan_.in_turns);
  EXPECT_TRUE(finds(pattern_of(merged, {local}, 64), 8, 65536, 1, 128));
  EXPECT_TRUE(plan_.in_turns);
}

}  // namespace
}  // namespace longstride::kernels::cuda::sm90
