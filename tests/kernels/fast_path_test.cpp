// Which shapes count as slow on a GPU, at those that were measured (docs/notes/2026-11/performance.md).
#include "kernels/attention/fast_path.h"

#include <gtest/gtest.h>

#include "tests/kernels/attention_patterns.h"

namespace longstride::kernels {
namespace {

using enum Integration;
using enum PartKind;

FastPath path_of(const PatternConfig& pattern, std::int64_t n, std::int64_t size) {
  return fast_path_of(*make_plan(pattern, 0, 8, n), size, size);
}
FastPath path_of_fixed(std::int64_t stride, std::int64_t summary, std::int64_t n, std::int64_t size) {
  return path_of(pattern_of(merged, {fixed_block, fixed_summary}, stride, {summary}), n, size);
}

TEST(FastPath, NamesNarrowSummariesAndTheNearestWidthThatIsFast) {
  struct Case {
    std::int64_t stride, summary, n, size;
    double work;
  };
  for (const Case& c : {Case{128, 10, 32768, 64, 1.37},
                        {222, 10, 32746, 64, 1.84},
                        {256, 10, 32768, 64, 1.90},
                        {128, 8, 12288, 64, 1.41},
                        {116, 11, 5435, 32, 1.79}}) {
    const FastPath path = path_of_fixed(c.stride, c.summary, c.n, c.size);
    EXPECT_EQ(path.slowness, Slowness::narrow_summary) << c.stride;
    EXPECT_EQ(path.value, c.summary);
    EXPECT_EQ(path.above, 16) << c.stride;
    EXPECT_NEAR(path.work, c.work, 0.3) << c.stride;
  }
}

TEST(FastPath, NamesNoShapeThatIsFastOrThatNoWidthWouldMakeFast) {
  EXPECT_EQ(path_of_fixed(222, 16, 32746, 64).slowness, Slowness::none);
  EXPECT_EQ(path_of_fixed(222, 32, 32746, 64).slowness, Slowness::none);
  EXPECT_EQ(path_of_fixed(128, 32, 12288, 64).slowness, Slowness::none);
  EXPECT_EQ(path_of_fixed(128, 31, 12288, 64).slowness, Slowness::none);
  EXPECT_EQ(path_of_fixed(300, 75, 12288, 64).slowness, Slowness::none);
  EXPECT_EQ(path_of_fixed(128, 16, 12288, 32).slowness, Slowness::none);
  EXPECT_EQ(path_of_fixed(128, 11, 12288, 32).slowness, Slowness::none);
  EXPECT_EQ(path_of_fixed(32, 8, 1024, 64).slowness, Slowness::none) << "every query sees few keys";
}

TEST(FastPath, NamesColumnsOfOneTileAndTheWidestStrideThatIsFast) {
  const PatternConfig columns = pattern_of(merged, {column}, 236);
  struct Case {
    std::int64_t n, key_size, value_size;
    double work;
  };
  for (const Case& c : {Case{6428, 64, 64, 1.38},
                        {6428, 48, 48, 1.35},
                        {9440, 48, 48, 1.43},
                        {15104, 64, 64, 1.88},
                        {15104, 32, 32, 1.51},
                        {15104, 64, 128, 1.43},
                        {6428, 32, 64, 1.36},
                        {6428, 80, 80, 1.6}}) {
    const AttentionPlan plan = *make_plan(columns, 0, 8, c.n);
    const FastPath path = fast_path_of(plan, c.key_size, c.value_size);
    EXPECT_EQ(path.slowness, Slowness::short_column) << c.n << ", " << c.key_size << "/" << c.value_size;
    EXPECT_EQ(path.value, (c.n + 235) / 236);
    EXPECT_NEAR(path.work, c.work, 0.1) << c.n << ", " << c.key_size << "/" << c.value_size;
    for (const std::int64_t beyond : {0, 1}) {
      const PatternConfig other = pattern_of(merged, {column}, static_cast<std::int32_t>(path.below + beyond));
      EXPECT_EQ(fast_path_of(*make_plan(other, 0, 8, c.n), c.key_size, c.value_size).slowness,
                beyond == 0 ? Slowness::none : Slowness::short_column);
    }
  }
  for (const std::int64_t n : {3776, 6428, 9440}) EXPECT_EQ(path_of(columns, n, 32).slowness, Slowness::none) << n;
  EXPECT_EQ(path_of(columns, 15105, 64).slowness, Slowness::none);
  EXPECT_EQ(path_of(columns, 64, 64).slowness, Slowness::none) << "no stride makes longer columns";
  EXPECT_EQ(fast_path_of(*make_plan(pattern_of(merged, {column}, 96), 0, 2, 3072), 64, 128).slowness, Slowness::none)
      << "CIFAR-10's";
}

TEST(FastPath, NamesColumnsWithHeadsOf24) {
  const PatternConfig columns = pattern_of(merged, {column}, 171);
  EXPECT_EQ(path_of(columns, 31121, 24).slowness, Slowness::column_head);
  EXPECT_EQ(path_of(columns, 31121, 24).above, 32);
  EXPECT_EQ(path_of(columns, 31121, 32).slowness, Slowness::none);
  EXPECT_EQ(path_of(pattern_of(merged, {local}, 171), 31121, 24).slowness, Slowness::none);
}

}  // namespace
}  // namespace longstride::kernels
