#include "kernels/attention/pattern/pattern.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "tests/kernels/attention_patterns.h"

namespace longstride::kernels {
namespace {

using enum Integration;
using enum PartKind;

std::string row_text(const PatternConfig& p, std::int64_t layer, std::int64_t heads, std::int64_t head, std::int64_t i,
                     std::int64_t n = 0) {
  std::string text;
  n = std::max(n, i + 1);
  for (std::int64_t j = 0; j < n; ++j) text += allowed(p, layer, heads, head, n, i, j) ? '#' : '.';
  return text;
}

// Rows written out by hand from the paper's definitions.
TEST(AttentionPattern, RowsMatchThePaper) {
  EXPECT_EQ(row_text(pattern_of(interleaved, {local, column}, 4), 0, 1, 0, 10), "......#####");
  EXPECT_EQ(row_text(pattern_of(interleaved, {local, column}, 4, {}, 4), 0, 1, 0, 10), ".......####");
  EXPECT_EQ(row_text(pattern_of(interleaved, {local, column}, 4), 1, 1, 0, 10), "..#...#...#");
  EXPECT_EQ(row_text(pattern_of(interleaved, {local, column}, 4), 2, 1, 0, 10), "......#####");
  EXPECT_EQ(row_text(pattern_of(merged, {local, column}, 4), 0, 1, 0, 10), "..#...#####");
  EXPECT_EQ(row_text(pattern_of(interleaved, {fixed_block}, 4), 0, 1, 0, 10), "........###");
  EXPECT_EQ(row_text(dilated_by({3}, 3, {dilated}), 0, 1, 0, 10), "....#..#..#");
  EXPECT_EQ(row_text(dilated_by({3, 1}, 2, {dilated}), 0, 2, 1, 10), ".........##");
  EXPECT_EQ(row_text(with_block(pattern_of(merged, {block_window}, 0), 3), 0, 1, 0, 7), "...#####");
  PatternConfig fixed = pattern_of(interleaved, {fixed_summary}, 4, {1});
  EXPECT_EQ(row_text(fixed, 0, 1, 0, 10), "...#...#...");
  fixed.summary_inclusive = true;
  EXPECT_EQ(row_text(fixed, 0, 1, 0, 10), "#..##..##..");
  fixed.distinct_heads = true;
  EXPECT_EQ(row_text(fixed, 0, 8, 1, 10), "#.#.#.#.#.#");
  EXPECT_EQ(row_text(fixed, 0, 8, 3, 10), "#...#...#..");
  EXPECT_EQ(row_text(fixed, 0, 8, 4, 10), "#..##..##..");
  EXPECT_EQ(row_text(pattern_of(merged, {fixed_block, fixed_summary}, 4, {2}), 0, 1, 0, 10), "..##..#####");
  EXPECT_EQ(row_text(pattern_of(multihead, {local, column}, 4), 0, 4, 1, 10), "......#####");
  EXPECT_EQ(row_text(pattern_of(multihead, {local, column}, 4), 0, 4, 2, 10), "..#...#...#");
}

TEST(AttentionPattern, RowsOfBothDirectionsMatchTheDefinition) {
  const auto row = [](PatternConfig p, std::int64_t i, std::int64_t head = 0) {
    p.direction = Direction::both;
    return row_text(p, 0, 2, head, i, 13);
  };
  EXPECT_EQ(row(pattern_of(merged, {dense}, 0), 5), "#############");
  EXPECT_EQ(row(pattern_of(merged, {local}, 0, {}, 5), 6), "....#####....");
  EXPECT_EQ(row(pattern_of(merged, {local}, 4), 1), "####.........");
  EXPECT_EQ(row(pattern_of(merged, {local, column}, 5, {}, 3), 6), ".#...###...#.");
  EXPECT_EQ(row(pattern_of(merged, {fixed_block}, 4), 5), "....####.....");
  EXPECT_EQ(row(dilated_by({2}, 5, {dilated}), 6), "..#.#.#.#.#..");
  EXPECT_EQ(row(with_block(pattern_of(merged, {block_window}, 0), 3), 7), "...#########.");
  EXPECT_EQ(row(with_block(pattern_of(merged, {block_window}, 0), 3), 1), "######.......");
  EXPECT_EQ(row(shifted_by(3, {1, 1}), 6), ".....#####...");
  EXPECT_EQ(row(shifted_by(3, {1, 1}), 6, 1), "..........###");
  EXPECT_EQ(row(shifted_by(3, {1, 1}), 12, 1), "#####........");
  EXPECT_EQ(row(with_options(pattern_of(merged, {fixed_summary}, 4, {1}), true, true), 5, 1), "#.#.#.#.#.#.#");
  EXPECT_EQ(row(with_first(pattern_of(merged, {local, first}, 0, {}, 3), 2), 8), "##.....###...");
}

TEST(AttentionPattern, FirstKeysAreThoseOfThePast) {
  const PatternConfig p = with_first(pattern_of(merged, {local, first}, 0, {}, 3), 4);
  EXPECT_EQ(row_text(p, 0, 1, 0, 9), "####...###");
  EXPECT_EQ(row_text(p, 0, 1, 0, 2, 10), "###.......");
}

TEST(AttentionPattern, ProblemsNameTheKeyItsValueAndWhatIsAllowed) {
  const auto problem = [](const PatternConfig& p, std::int64_t heads = 4) { return problem_of(p, heads, 2); };
  EXPECT_EQ(problem(pattern_of(interleaved, {}, 4)),
            "attention.parts is empty, but must name at least one of dense, local, column, fixed_block, fixed_summary, "
            "first, block_window, dilated, random_blocks, shifted_block");
  EXPECT_EQ(problem(pattern_of(interleaved, {dense, column}, 0)),
            "attention.stride is 0, but column needs a positive number of positions");
  EXPECT_EQ(problem(pattern_of(interleaved, {local}, 0)),
            "attention.stride is 0, but local needs a positive number of positions");
  EXPECT_EQ(problem(pattern_of(interleaved, {local}, 0, {}, 3)), "");
  EXPECT_EQ(problem(pattern_of(interleaved, {dense}, -4)),
            "attention.stride is -4, but must be a positive number of positions");
  EXPECT_EQ(problem(pattern_of(interleaved, {local}, 4, {}, -1)),
            "attention.window is -1, but must be a positive number of keys, or 0 for stride + 1");
  EXPECT_EQ(problem(pattern_of(interleaved, {fixed_summary}, 128, {200})),
            "attention.summary is 200, but must be at most the stride 128");
  EXPECT_EQ(problem(pattern_of(interleaved, {fixed_summary}, 128, {8, 8, 0, 8})),
            "attention.summary is 0, but must be at least 1");
  EXPECT_EQ(problem(pattern_of(interleaved, {fixed_summary}, 128)),
            "attention.summary is not set, but fixed_summary needs the number of summary positions in each block");
  EXPECT_EQ(problem(pattern_of(interleaved, {fixed_summary}, 128, {8, 8})),
            "attention.summary lists 2 widths, but must be one width or one for each of 4 heads");
  EXPECT_EQ(problem(pattern_of(multihead, {local, column}, 128), 1),
            "attention.parts lists 2 parts, but multihead has only 1 head to give them to");
  for (const auto& [parts, text] : {std::pair<std::vector<PartKind>, std::string>{{dense, column}, "[dense, column]"},
                                    {{local, fixed_block}, "[local, fixed_block]"},
                                    {{column, fixed_summary}, "[column, fixed_summary]"},
                                    {{local, column, fixed_summary}, "[local, column, fixed_summary]"},
                                    {{dense, local}, "[dense, local]"}})
    EXPECT_EQ(problem(pattern_of(merged, parts, 8, {2})),
              "attention.parts is " + text +
                  ", but merged takes a single part, or one window (local, fixed_block) and one of column, "
                  "fixed_summary and first, or block_window and one of first and random_blocks");
  EXPECT_EQ(problem(pattern_of(merged, {local, first}, 0, {}, 3)),
            "attention.first is 0, but the part first needs a positive number of keys");
  PatternConfig both = pattern_of(merged, {local}, 0, {}, 512);
  both.direction = Direction::both;
  EXPECT_EQ(problem(both),
            "attention.window is 512, but direction both needs an odd number of keys, as many behind a position as "
            "ahead");
  both.stride = 7, both.window = 0;
  EXPECT_EQ(problem(both),
            "attention.window is 0, stride + 1 = 8, but direction both needs an odd number of keys, as many behind a "
            "position as ahead");
  EXPECT_EQ(problem(pattern_of(merged, {dense}, 0)), "");
  EXPECT_EQ(problem_of(pattern_of(merged, {dense}, 0), 0, 1), "heads is 0, but must be at least 1");
  EXPECT_EQ(problem_of(pattern_of(merged, {dense}, 0), 1, 0), "layers is 0, but must be at least 1");
}

TEST(AttentionPattern, ProblemsOfBlocksAndDilatedWindows) {
  const auto problem = [](const PatternConfig& p) { return problem_of(p, 4, 2); };
  EXPECT_EQ(problem(pattern_of(merged, {block_window}, 0)),
            "attention.block is 0, but the part block_window needs a positive number of positions");
  EXPECT_EQ(problem(dilated_by({2}, 0, {dilated})),
            "attention.window is 0, but the part dilated needs a positive number of keys");
  EXPECT_EQ(problem(dilated_by({2, 2}, 3, {dilated})),
            "attention.dilation lists 2 distances, but must be one distance or one for each of 4 heads");
  EXPECT_EQ(problem(dilated_by({0}, 3, {dilated})), "attention.dilation is 0, but must be at least 1");
  EXPECT_EQ(problem(shifted_by(2, {2, 2})), "");
  EXPECT_EQ(problem(shifted_by(0, {4})),
            "attention.blocks is 0, but the part shifted_block needs a number of blocks from 1 to 4096");
  EXPECT_EQ(problem(shifted_by(2, {2, 1, 1})), "attention.shifts has shift 2, but must be below blocks, 2");
  EXPECT_EQ(problem(shifted_by(2, {2, 1})), "attention.shifts adds up to 3 heads, but there are 4");
  EXPECT_EQ(problem(shifted_by(2, {5, -1})), "attention.shifts has 5 heads, but must have from 0 to 4");
  PatternConfig past = shifted_by(2, {2, 2});
  past.direction = Direction::past;
  EXPECT_EQ(problem(past),
            "attention.parts has shifted_block, whose blocks lie ahead, but direction is past; use fixed_block");
}

}  // namespace
}  // namespace longstride::kernels
