#include "framework/core/parameters.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace longstride {
namespace {

ParameterSet some() {
  ParameterSet set;
  set.add("table", {10, 30}, {});     // 300, rounded up to slices: 320
  set.add("gain", {30}, {});          // 64
  set.add("matrix.0", {20, 20}, {});  // 400: 448
  set.add("bias", {70}, {});          // 128
  set.add("matrix.1", {8, 8}, {});    // 64
  return set;
}

TEST(Parameters, BucketsAreFilledFromTheLastParameterToTheFirst) {
  ParameterSet set = some();
  set.lay_out(1, 400);
  ASSERT_EQ(set.buckets().size(), 3u);
  EXPECT_EQ(set.buckets()[0].count, 320);       // the table
  EXPECT_EQ(set.buckets()[1].count, 448 + 64);  // both matrices
  EXPECT_EQ(set.buckets()[2].count, 64 + 128);  // vectors
  EXPECT_FALSE(set.buckets()[2].decays);
  EXPECT_EQ(set.decayed_size(), set.buckets()[2].begin);
}

TEST(Parameters, BucketsCoverTheFlatBuffersAndEveryRankHasWholeSlicesOfEach) {
  for (int ranks : {1, 2, 3, 7, 64})
    for (std::int64_t bucket : {1, 400, 1 << 20}) {
      ParameterSet set = some();
      set.lay_out(ranks, bucket);
      std::int64_t end = 0;
      for (const FlatRange& b : set.buckets()) {
        EXPECT_EQ(b.begin, end);
        EXPECT_EQ(b.count % (ranks * ParameterSet::alignment), 0);
        EXPECT_EQ(b.decays, b.begin < set.decayed_size());
        end += b.count;
      }
      EXPECT_EQ(end, set.flat_size());
      for (const Parameter& p : set.all()) {  // none extends beyond its bucket
        const auto within = [&](const FlatRange& b) {
          return b.begin <= p.offset && p.offset + p.shape.count() <= b.begin + b.count && b.decays == p.decays();
        };
        EXPECT_EQ(std::count_if(set.buckets().begin(), set.buckets().end(), within), 1) << p.name;
      }
    }
}

TEST(Parameters, WithOneRankNothingIsPadded) {
  ParameterSet set = some();
  set.lay_out();
  EXPECT_EQ(set.flat_size(), 320 + 448 + 64 + 64 + 128);
  EXPECT_EQ(set.buckets().size(), 2u);
}

}  // namespace
}  // namespace longstride
