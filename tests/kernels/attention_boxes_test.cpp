// Summary rows as Hopper's kernels read them: in runs that divide their tiles, with holes.
#include <gtest/gtest.h>

#include "kernels/attention/sm90/general/geometry.h"

namespace longstride::kernels::cuda::sm90 {
namespace {

RowSet summary_rows(std::int32_t period, std::int32_t width, std::int32_t block, std::int32_t n) {
  return rows_within({period - (block + 1) * width, width, period, 0}, 0, n);
}

TEST(AttentionBoxes, HoldEveryRowOnceAndInOrder) {
  for (const std::int32_t period : {7, 40, 64, 100, 128, 300})
    for (std::int32_t width = 2; width <= period / 2; ++width)
      for (std::int32_t block = 0; (block + 1) * width <= period; ++block)
        for (const std::int32_t n : {1, period - 1, period, 4 * period, 5 * period + 3, 6 * period - 1}) {
          const RowSet set = summary_rows(period, width, block, n), boxes = boxed(set);
          ASSERT_GT(boxes.run, 0) << width << " of " << period;
          ASSERT_TRUE(has_boxes(boxes, 64) && has_boxes(boxes, 128)) << width << " of " << period;
          std::int32_t found = 0, previous = -1;
          for (std::int32_t t = 0; t < boxes.length; ++t) {
            ASSERT_GT(boxes.position(t), previous);
            previous = boxes.position(t);
            if (t % boxes.run >= width) continue;
            ASSERT_LT(found, set.length);
            ASSERT_EQ(boxes.position(t), set.position(found++));
          }
          ASSERT_EQ(found, set.length) << width << " of " << period << ", n " << n;
          std::int32_t keys = 0;
          for (std::int32_t p = 0; p <= n; ++p) {
            ASSERT_EQ(keys, set.count_below(p));
            std::int32_t below = boxes.count_below(p);
            below -= below / boxes.run * (boxes.run - width) + std::max(below % boxes.run - width, 0);
            ASSERT_EQ(below, keys) << width << " of " << period << ", below " << p;
            keys += set.holds(p) ? 1 : 0;
          }
        }
}

TEST(AttentionBoxes, KeepRunsThatFitTiles) {
  for (const std::int32_t width : {1, 2, 4, 8, 16, 32, 64, 128, 256, 384})
    EXPECT_EQ(boxed(summary_rows(1000, width, 0, 5000)), summary_rows(1000, width, 0, 5000));
  EXPECT_EQ(boxed(summary_rows(100, 31, 0, 500)).run, 32);
  EXPECT_EQ(boxed(summary_rows(300, 192, 0, 900)).run, 256);
}

// Runs longer than the period would put rows out of order.
TEST(AttentionBoxes, DoNotReachBeyondThePeriod) { EXPECT_EQ(boxed(summary_rows(100, 70, 0, 500)).run, 0); }

}  // namespace
}  // namespace longstride::kernels::cuda::sm90
