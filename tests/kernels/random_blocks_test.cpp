#include "kernels/attention/pattern/random_blocks.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <set>
#include <stdexcept>
#include <tuple>
#include <utility>
#include <vector>

#include "kernels/attention/pattern/block_lists.h"
#include "kernels/attention/pattern/plan.h"

namespace longstride::kernels {
namespace {

PatternConfig random_pattern(std::int64_t random, bool window = true, std::int64_t first = 1, std::int64_t last = 1) {
  PatternConfig p;
  p.integration = Integration::merged;
  p.direction = Direction::both;
  p.parts = {PartKind::random_blocks};
  if (window) p.parts.insert(p.parts.begin(), PartKind::block_window);
  p.block = 64;
  p.random = random;
  p.global_first = first;
  p.global_last = last;
  return p;
}

TEST(RandomBlocks, AreReadAsOftenAsTheyRead) {
  for (const bool window : {false, true})
    for (const auto& [first, last] : {std::pair<std::int64_t, std::int64_t>{0, 0}, {1, 1}, {3, 0}})
      for (std::int64_t blocks = first + last + 1; blocks < 40; ++blocks) {
        const std::int64_t most = most_random_blocks(random_pattern(1, window, first, last), blocks);
        ASSERT_EQ(most, std::max<std::int64_t>(blocks - first - last - (window ? 3 : 0), 0));
        for (const std::int64_t random : {std::int64_t{1}, std::int64_t{3}, most}) {
          if (random < 1) continue;
          const PatternConfig p = random_pattern(random, window, first, last);
          const KeyBlocks drawn = drawn_blocks(p, 2, 1, blocks);
          std::vector<std::int64_t> readers(static_cast<std::size_t>(blocks));
          for (std::int64_t b = 0; b < blocks; ++b) {
            const std::vector<std::int32_t>& own = drawn[static_cast<std::size_t>(b)];
            const bool between = first <= b && b < blocks - last;
            ASSERT_EQ(std::ssize(own), between ? std::min(random, most) : 0) << blocks;
            EXPECT_EQ(std::set(own.begin(), own.end()).size(), own.size()) << "a block twice";
            for (const std::int32_t c : own) {
              EXPECT_TRUE(!window || std::abs(b - c) > 1) << "the window has it";
              ++readers[static_cast<std::size_t>(c)];
            }
          }
          for (std::int64_t c = 0; c < blocks; ++c)
            ASSERT_EQ(readers[static_cast<std::size_t>(c)],
                      first <= c && c < blocks - last ? std::min(random, most) : 0)
                << "block " << c << " of " << blocks;
        }
      }
}

TEST(RandomBlocks, DependOnSeedLayerAndHeadAlone) {
  PatternConfig p = random_pattern(3);
  const KeyBlocks one = drawn_blocks(p, 0, 0, 64);
  EXPECT_EQ(one, drawn_blocks(p, 0, 0, 64));
  EXPECT_NE(one, drawn_blocks(p, 1, 0, 64));
  EXPECT_NE(one, drawn_blocks(p, 0, 1, 64));
  p.seed = 1;
  EXPECT_NE(one, drawn_blocks(p, 0, 0, 64));
}

TEST(RandomBlocks, AreThoseOfTheOtherProgram) {  // tests/golden/random_blocks.py
  PatternConfig p = random_pattern(3);
  p.seed = 7;
  const KeyBlocks expected = {{},        {3, 4, 6}, {7, 5, 9}, {1, 9, 8}, {6, 8, 7}, {8, 3, 2},
                              {9, 2, 1}, {5, 1, 4}, {4, 6, 3}, {2, 7, 5}, {}};
  EXPECT_EQ(drawn_blocks(p, 1, 0, 11), expected);
}

// Every pair of blocks that may be drawn is, as often as any other: within five deviations over 4,000 heads.
TEST(RandomBlocks, AreEquallyLikely) {
  const std::int64_t blocks = 12, heads = 4000;
  const PatternConfig p = random_pattern(2);
  std::vector<std::int64_t> times(static_cast<std::size_t>(blocks * blocks));
  for (std::int64_t head = 0; head < heads; ++head) {
    const KeyBlocks drawn = drawn_blocks(p, 0, head, blocks);
    for (std::size_t b = 0; b < drawn.size(); ++b)
      for (const std::int32_t c : drawn[b]) ++times[b * static_cast<std::size_t>(blocks) + static_cast<std::size_t>(c)];
  }
  const double share = 2.0 / 7, mean = share * static_cast<double>(heads);
  for (std::int64_t b = 1; b < blocks - 1; ++b)
    for (std::int64_t c = 1; c < blocks - 1; ++c) {
      const std::int64_t apart = std::abs(b - c);
      if (apart <= 1 || apart == 9) continue;
      EXPECT_NEAR(static_cast<double>(times[static_cast<std::size_t>(b * blocks + c)]), mean,
                  5 * std::sqrt(mean * (1 - share)))
          << b << ", " << c;
    }
}

TEST(RandomBlocks, OfThePublishedDrawAreOfTheFirstThousandPositions) {
  PatternConfig p = random_pattern(3);
  p.draw = BlockDraw::published;
  std::int64_t most = 0, none = 0, in_window = 0;
  std::vector<std::int64_t> readers(64);
  for (std::int64_t head = 0; head < 40; ++head) {
    const KeyBlocks drawn = drawn_blocks(p, 0, head, 64);
    EXPECT_TRUE(drawn.front().empty() && drawn.back().empty());
    for (std::int64_t b = 1; b < 63; ++b) {
      ASSERT_EQ(std::ssize(drawn[static_cast<std::size_t>(b)]), 3);
      for (const std::int32_t c : drawn[static_cast<std::size_t>(b)]) {
        ++readers[static_cast<std::size_t>(c)];
        in_window += std::abs(b - c) <= 1;
      }
    }
  }
  for (std::int64_t c = 1; c < 63; ++c) {
    most = std::max(most, readers[static_cast<std::size_t>(c)]);
    none += readers[static_cast<std::size_t>(c)] == 0;
  }
  EXPECT_EQ(none, 62 - 15) << "blocks from 1,024 on";
  EXPECT_GT(most, 40 * 6);
  EXPECT_EQ(in_window, 0) << "of 64 blocks the last two rows draw from far away";
  // Among 16 blocks the last two may draw their neighbours.
  for (std::int64_t head = 0; head < 40; ++head) {
    const KeyBlocks drawn = drawn_blocks(p, 0, head, 16);
    for (const std::int64_t b : {13, 14})
      for (const std::int32_t c : drawn[static_cast<std::size_t>(b)]) in_window += std::abs(b - c) <= 1;
  }
  EXPECT_GT(in_window, 0);
}

TEST(RandomBlocks, WindowAndGlobalBlocksAreOneListThatEqualsTheMask) {
  for (const std::int64_t n : {64, 200, 449, 700}) {
    for (const auto& [window, first, last] :
         {std::tuple<bool, std::int64_t, std::int64_t>{true, 1, 1}, {true, 0, 0}, {true, 2, 0}, {false, 0, 1}}) {
      const PatternConfig p = random_pattern(2, window, first, last);
      const std::int64_t heads = 2, blocks = blocks_in(n, p.block);
      ASSERT_EQ(problem_of(p, heads, 1), "");
      const auto plan = make_plan(p, 0, heads, n);
      ASSERT_EQ(plan->parts.size(), 1u);
      EXPECT_EQ(plan->parts[0].kind, PartKind::dense);
      ListsOfHeads made = lists_of_heads(p, 0, heads, blocks);
      const BlockLists lists{static_cast<std::int32_t>(p.block),
                             {made.key_begin.data(), Dtype::i32, {1, heads, blocks + 1}},
                             {made.keys.data(), Dtype::i32, {1, heads, made.entries}}};
      ASSERT_EQ(problem_of(lists, blocks), "");
      for (std::int64_t head = 0; head < heads; ++head) {
        const KeyBlocks drawn = drawn_blocks(p, 0, head, blocks);
        const ListsOfHead of_head = ListsView::of_queries(lists).of(0, head);
        std::int64_t pairs = 0;
        for (std::int64_t i = 0; i < n; i += 7)
          for (std::int64_t j = 0; j < n; j += 5) {
            const std::int64_t b = i / 64, c = j / 64;
            const auto ends = [&](std::int64_t x) { return x < first || x >= blocks - last; };
            const auto& own = drawn[static_cast<std::size_t>(b)];
            const bool seen = ends(b) || ends(c) || (window && std::abs(b - c) <= 1) ||
                              std::find(own.begin(), own.end(), c) != own.end();
            ASSERT_EQ(allowed(p, 0, heads, head, n, i, j), seen) << n << ", " << i << ", " << j;
            bool listed = false;
            for (std::int32_t at = of_head.begin[b]; at < of_head.begin[b + 1]; ++at) listed |= of_head.blocks[at] == c;
            ASSERT_EQ(listed, seen);
          }
        for (std::int64_t b = 0; b < blocks; ++b)
          for (std::int32_t at = of_head.begin[b]; at < of_head.begin[b + 1]; ++at)
            pairs += std::min<std::int64_t>(64, n - b * 64) * std::min<std::int64_t>(64, n - of_head.blocks[at] * 64);
        EXPECT_EQ(allowed_pairs(p, 0, heads, head, n), pairs);
      }
    }
  }
}

TEST(RandomBlocks, ProblemsNameTheKey) {
  const auto problem = [](auto&& change) {
    PatternConfig p = random_pattern(3);
    change(p);
    return problem_of(p, 2, 1);
  };
  EXPECT_EQ(problem([](PatternConfig& p) { p.block = 100; }),
            "attention.block is 100, but random_blocks needs a multiple of 64");
  EXPECT_EQ(problem([](PatternConfig& p) { p.random = 0; }),
            "attention.random is 0, but the part random_blocks needs a positive number of blocks");
  EXPECT_EQ(problem([](PatternConfig& p) { p.direction = Direction::past; }),
            "attention.parts has random_blocks, which lie ahead as well, but direction is past; use column or first");
  EXPECT_EQ(
      problem([](PatternConfig& p) { p.integration = Integration::interleaved; }),
      "attention.integration is interleaved, but random_blocks needs one softmax over its blocks and the window's; "
      "set it to merged");
  EXPECT_EQ(problem([](PatternConfig& p) { p.draw = BlockDraw::published, p.global_last = 0; }),
            "attention.draw is published, but that draw is of a block_window with one global block at both ends; set "
            "model.global to {first: 1, last: 1}, or draw to balanced");
  try {
    make_plan(random_pattern(1), 0, 1, 640, {}, 64);
    ADD_FAILURE();
  } catch (const std::invalid_argument& refused) {
    EXPECT_STREQ(refused.what(),
                 "attention of 64 queries to 640 keys, but random_blocks takes as many queries as keys");
  }
}

}  // namespace
}  // namespace longstride::kernels
