// The tasks of own blocks and summary rows against the definition of the mask, and that blocks that sum dQ in turns
// never wait in a circle.
#include "kernels/attention/sm90/long_band/joined_order.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "kernels/attention/choice.h"
#include "tests/kernels/attention_patterns.h"
#include "tests/kernels/turn_blocks.h"

namespace longstride::kernels::cuda::sm90 {
namespace {

class JoinedOrders : public ::testing::Test {
 protected:
  static PatternConfig two_parts(PartKind window, std::int64_t l, std::vector<std::int64_t> c) {
    return pattern_of(Integration::merged, {window, PartKind::fixed_summary}, l, std::move(c));
  }
  static PatternConfig fixed(std::int64_t l, std::int64_t c, bool distinct = true, bool inclusive = false) {
    return with_options(two_parts(PartKind::fixed_block, l, {c}), distinct, inclusive);
  }
  bool finds(const PatternConfig& pattern, std::int64_t heads, std::int64_t n, std::int64_t batch = 1,
             std::int64_t size = 64) {
    const auto made = make_plan(pattern, 0, heads, n);
    const AttentionChoice choice = choose_backward({made.get(), batch, size, size});
    plan_ = choice.joined;
    return choice.family == AttentionFamily::joined;
  }
  // Calls f(pattern, heads, n, text), with the plan in place.
  template <class F>
  void for_all(const F& f) {
    for (const auto& [l, c, heads] : {std::tuple{64, 8, 8},
                                      {64, 16, 3},
                                      {128, 32, 4},
                                      {128, 64, 2},
                                      {192, 64, 3},
                                      {256, 128, 2},
                                      {320, 4, 2},
                                      {448, 2, 1},
                                      {512, 128, 4},
                                      {128, 31, 4},
                                      {100, 25, 4},
                                      {100, 20, 5},
                                      {222, 10, 3},
                                      {300, 75, 2},
                                      {50, 6, 8},
                                      {17, 3, 2}})
      for (const std::int64_t n : {l, l + 1, 2 * l - 1, 2 * l + 63, 3 * l + 64, 5 * l + 65}) {
        const PatternConfig pattern = fixed(l, c);
        const std::string text = "l " + std::to_string(l) + ", c " + std::to_string(c) + ", n " + std::to_string(n);
        for (const std::int64_t size : {32, 64}) {
          ASSERT_TRUE(finds(pattern, heads, n, 1, size)) << text;
          f(pattern, heads, n, text + ", heads " + std::to_string(size));
          if (HasFailure()) return;
        }
      }
  }
  // The kernel's work: per task, the pairs of its strips' query tiles and keys, of queries from the key on.
  static std::vector<char> pairs_of(const JoinedOrder& order, const std::string& text) {
    const auto n = static_cast<std::size_t>(order.block.length);
    std::vector<char> times(n * n);
    std::vector<int> writers(n);
    for (std::int32_t task = 0; task < order.tasks(); ++task)
      for (std::int32_t strip = 0; strip < order.block.strips; ++strip) {
        const std::int32_t begin = order.begin_of(task, strip), end = order.end_of(task, strip);
        EXPECT_TRUE(order.begin_of(task) <= begin && begin <= end && end <= order.end_of(task)) << text;
        for (std::int32_t i = strip * band_rows; i < (strip + 1) * band_rows; ++i) {
          const std::int32_t key = order.key_of(task, i);
          if (key < 0) continue;
          ++writers[static_cast<std::size_t>(key)];
          const std::int32_t last = std::min(end * band_rows, order.end_of_key(task, key));
          for (std::int32_t query = std::max(begin * band_rows, key); query < last; ++query)
            ++times[static_cast<std::size_t>(query) * n + static_cast<std::size_t>(key)];
        }
      }
    EXPECT_EQ(std::count(writers.begin(), writers.end(), 1), order.block.length)
        << text << ": a row without one writer";
    return times;
  }
  JoinedPlan plan_;
};

TEST_F(JoinedOrders, GiveEveryPairToOneTaskAndEveryKeyOneWriter) {
  for_all([&](const PatternConfig& pattern, std::int64_t heads, std::int64_t n, const std::string& text) {
    for (std::int64_t head = 0; head < heads; ++head) {
      const std::vector<char> times = pairs_of(plan_.order(static_cast<std::int32_t>(head)), text);
      for (std::int64_t query = 0; query < n; ++query)
        for (std::int64_t key = 0; key < n; ++key)
          ASSERT_EQ(times[static_cast<std::size_t>(query * n + key)],
                    allowed(pattern, 0, heads, head, n, query, key) ? 1 : 0)
              << text << ", head " << head << ", query " << query << ", key " << key;
    }
  });
}

TEST_F(JoinedOrders, CountTurnsInTheOrderOfTasks) {
  for_all([&](const PatternConfig&, std::int64_t heads, std::int64_t, const std::string& text) {
    for (std::int32_t head = 0; head < heads; ++head) {
      const JoinedOrder order = plan_.order(head);
      std::map<std::int32_t, std::vector<std::int32_t>> tasks;  // per query tile
      for (std::int32_t task = 0; task < order.tasks(); ++task)
        for (std::int32_t query = order.begin_of(task); query < order.end_of(task); ++query)
          tasks[query].push_back(task);
      ASSERT_EQ(std::ssize(tasks), order.query_tiles()) << text;
      for (const auto& [query, of_query] : tasks) {
        ASSERT_LT(of_query.size(), plan_.turns.ring.most_turns) << text;
        for (std::size_t i = 0; i < of_query.size(); ++i) {
          ASSERT_EQ(order.turn(of_query[i], query), static_cast<std::int32_t>(i)) << text << ", query tile " << query;
          ASSERT_EQ(order.is_last(of_query[i], query), i + 1 == of_query.size()) << text << ", query tile " << query;
        }
      }
    }
  });
}

TEST_F(JoinedOrders, BlocksNeverWaitInACircle) {
  for_all([&](const PatternConfig&, std::int64_t heads, std::int64_t, const std::string& text) {
    for (const std::int32_t classes : {1, 20})
      for (const std::size_t blocks : {1, 7, 132})
        for (const std::int32_t lanes : {1, 3, 20}) {
          TurnRing ring = plan_.turns.ring;
          ring.lanes = std::min(lanes, classes);
          const auto head = static_cast<std::int32_t>(classes % heads);
          EXPECT_TRUE(TurnBlocks(plan_.order(head), ring, classes, blocks).run()) << text;
        }
  });
}

TEST_F(JoinedOrders, AreThoseOfTheRecipe) {
  ASSERT_TRUE(finds(fixed(128, 32), 8, 12288, 8));
  EXPECT_EQ(plan_.order().tasks(), 96 + 24);
  EXPECT_EQ(plan_.first[0], 96);
  EXPECT_EQ(plan_.first[3], 0);
  EXPECT_EQ(plan_.first[4], 96);
  EXPECT_EQ(plan_.turns.ring.lanes, 16);
  EXPECT_EQ(plan_.turns.groups, 4);
  ASSERT_TRUE(finds(fixed(128, 2), 8, 12288, 8));
  EXPECT_EQ(plan_.turns.groups, 1) << "64 classes of two summary tasks each";
  ASSERT_TRUE(finds(fixed(128, 32), 8, 12288, 8, 32));
  EXPECT_EQ(plan_.order().tasks(), 64 + 16);
}

TEST_F(JoinedOrders, PadHeadsAndReadInPiecesWhatIsNoBox) {
  EXPECT_TRUE(finds(fixed(128, 32), 8, 1024, 1, 32));
  EXPECT_FALSE(plan_.in_pieces);
  EXPECT_EQ(plan_.turns.head, 32);
  EXPECT_TRUE(finds(fixed(128, 24), 5, 1024, 1, 32));
  EXPECT_EQ(plan_.turns.head, 64) << "rows of pieces have 128 bytes";
  EXPECT_TRUE(finds(fixed(128, 24), 5, 1024));
  EXPECT_TRUE(plan_.in_pieces) << "tiles of summary rows are no boxes";
  EXPECT_TRUE(finds(fixed(128, 32), 8, 1024, 1, 128));
  EXPECT_EQ(plan_.turns.head, 128);
}

}  // namespace
}  // namespace longstride::kernels::cuda::sm90
