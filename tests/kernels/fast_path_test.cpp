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

TEST(FastPath, NamesColumnsWithHeadsOf24) {
  const PatternConfig columns = pattern_of(merged, {column}, 171);
  EXPECT_EQ(path_of(columns, 31121, 24).slowness, Slowness::column_head);
  EXPECT_EQ(path_of(columns, 31121, 24).above, 32);
  EXPECT_EQ(path_of(columns, 31121, 32).slowness, Slowness::none);
  EXPECT_EQ(path_of(pattern_of(merged, {local}, 171), 31121, 24).slowness, Slowness::none);
}

}  // namespace
}  // namespace longstride::kernels
