// The walk of a long band, against the band's definition: which visit computes what for every pair of rows.
#include "kernels/attention/sm90/band/long_band_walk.h"

#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "kernels/attention/sm90/band/long_band_plan.h"
#include "tests/kernels/attention_patterns.h"

namespace longstride::kernels::cuda::sm90 {
namespace {

struct WalkedBand {
  BandShape shape;
  std::int32_t length, run;  // entries, chunks

  std::string text() const {
    return "window " + std::to_string(shape.window) + ", block " + std::to_string(shape.block) + ", length " +
           std::to_string(length) + ", run " + std::to_string(run);
  }
  bool sees(std::int32_t query, std::int32_t key) const { return key <= query && query < shape.beyond(key); }
};

std::vector<WalkedBand> walked_bands() {
  std::vector<WalkedBand> bands;
  for (const std::int32_t length : {1, 64, 65, 500, 512, 513, 1000, 1601})
    for (const std::int32_t run : {1, 2, 3, 4})
      for (const BandShape& shape : {BandShape{.window = 320},
                                     {.window = 400},
                                     {.window = 512},
                                     {.window = 513},
                                     {.window = 900},
                                     {.window = 1024},
                                     {.window = 1601},
                                     {.window = 0, .block = 330},
                                     {.window = 0, .block = 512},
                                     {.window = 0, .block = 777}})
        bands.push_back({shape, length, run});
  return bands;
}

// Calls f(walk, visit) for every visit of every run.
template <class F>
void each_visit(const WalkedBand& band, F&& f) {
  for (std::int32_t begin = 0; begin * chunk_rows < band.length; begin += band.run) {
    LongBandWalk walk(band.shape, band.length, begin, begin + band.run);
    for (; walk.more(); walk.advance()) f(walk, walk.visit(), begin);
  }
}

TEST(LongBandWalk, GivesEveryPairToEachGradientOnce) {
  for (const WalkedBand& band : walked_bands()) {
    std::map<std::pair<std::int32_t, std::int32_t>, int> of_query, of_keys;  // pairs of tiles of 64
    each_visit(band, [&](const LongBandWalk& walk, const LongBandVisit& v, std::int32_t) {
      for (std::int32_t half = 0; half < 2; ++half) {
        std::int32_t begin = 0, end = 0;
        walk.seen_by(half, v, begin, end);
        for (std::int32_t query = begin; query < end; ++query) {
          of_query[{query, 2 * v.key + half}] += v.has_query_gradient;
          of_keys[{query, 2 * v.key + half}] += v.has_key_gradients;
        }
      }
    });
    for (std::int32_t query = 0; query < band.length; ++query)
      for (const std::int32_t key : {query, query - 1, band.shape.low(query), band.shape.low(query) + 1, query / 2}) {
        if (key < 0 || !band.sees(query, key)) continue;
        const std::pair pair{query / band_rows, key / band_rows};
        ASSERT_EQ(of_query[pair], 1) << band.text() << ", query " << query << ", key " << key;
        ASSERT_EQ(of_keys[pair], 1) << band.text() << ", query " << query << ", key " << key;
      }
    for (const auto& [pair, times] : of_query) ASSERT_LE(times, 1) << band.text();
    for (const auto& [pair, times] : of_keys) ASSERT_LE(times, 1) << band.text();
  }
}

// A query tile's dQ begins with zero once, is complete at its own keys, and is in its chunk's memory in between.
TEST(LongBandWalk, SumsTheGradientOfQueriesFromTheFirstKeyTileToTheirOwn) {
  for (const WalkedBand& band : walked_bands()) {
    std::vector<std::int32_t> holder(chunk_tiles, -1);  // the query tile whose sum a place has
    std::vector<bool> written(static_cast<std::size_t>(tiles_in(band.length, band_rows)), false);
    each_visit(band, [&](const LongBandWalk& walk, const LongBandVisit& v, std::int32_t) {
      ASSERT_LT(v.query_begin, v.query_end) << band.text();
      if (!v.has_query_gradient) return;
      for (std::int32_t query = v.query_begin; query < v.query_end; ++query) {
        std::int32_t& place = holder.at(static_cast<std::size_t>(query % chunk_tiles));
        ASSERT_EQ(place, walk.is_fresh(query) ? -1 : query) << band.text();
        place = query / 2 == v.key ? -1 : query;
        if (place >= 0) continue;
        ASSERT_FALSE(written.at(static_cast<std::size_t>(query))) << band.text();
        written.at(static_cast<std::size_t>(query)) = true;
      }
    });
    for (const bool was : written) ASSERT_TRUE(was) << band.text();
  }
}

// The sums of a key tile stay in its slot from its first visit to its last, both in one run.
TEST(LongBandWalk, KeepsTheSumsOfKeysBetweenTheirVisits) {
  for (const WalkedBand& band : walked_bands()) {
    const std::int32_t slots = later_chunks(band.shape, band.length) * chunk_key_tiles;
    std::vector<std::int32_t> holder(static_cast<std::size_t>(slots), -1);
    std::map<std::int32_t, int> completed;
    each_visit(band, [&](const LongBandWalk&, const LongBandVisit& v, std::int32_t run) {
      if (!v.has_key_gradients) return;
      ASSERT_GE(v.key, run * chunk_key_tiles) << band.text();
      ASSERT_LT(v.key, (run + band.run) * chunk_key_tiles) << band.text();
      if (!v.first) {
        ASSERT_EQ(holder.at(static_cast<std::size_t>(v.key % slots)), v.key) << band.text();
        holder.at(static_cast<std::size_t>(v.key % slots)) = -1;
      }
      if (v.last) {
        ++completed[v.key];
      } else {
        ASSERT_EQ(holder.at(static_cast<std::size_t>(v.key % slots)), -1) << band.text();
        holder.at(static_cast<std::size_t>(v.key % slots)) = v.key;
      }
    });
    for (std::int32_t key = 0; key * key_tile_rows < band.length; ++key) ASSERT_EQ(completed[key], 1) << band.text();
  }
}

AttentionBackwardArgs args_of(const AttentionPlan& plan, std::int64_t batch, std::int64_t size) {
  const auto heads = static_cast<std::int64_t>(plan.heads.size());
  AttentionBackwardArgs args;
  args.plan = &plan;
  args.q = args.k = args.v = Tensor(nullptr, Dtype::bf16, {batch, plan.n, heads, size});
  return args;
}

TEST(LongBandPlan, TakesBandsThatKeepBlocksBusy) {
  LongBandPlan plan;
  const auto columns = make_plan(pattern_of(Integration::merged, {PartKind::column}, 512), 0, 8, 262144);
  const auto windows = make_plan(pattern_of(Integration::merged, {PartKind::local}, 512), 0, 8, 262144);
  EXPECT_TRUE(find_long_band(args_of(*columns, 1, 64), plan));
  EXPECT_EQ(plan.runs, 1);
  EXPECT_EQ(plan.scratch_bytes(), 0u) << "a column of 512 rows is one chunk";
  EXPECT_TRUE(find_long_band(args_of(*windows, 1, 64), plan));
  EXPECT_EQ(plan.slots, 4) << "a window of 513 is seen by the chunk after a key's own";
  EXPECT_GT(plan.busy, 0.9);
  EXPECT_FALSE(find_long_band(args_of(*windows, 1, 32), plan)) << "the general kernels have their own for 32";
  EXPECT_FALSE(find_long_band(args_of(*windows, 1, 128), plan));
}

TEST(LongBandPlan, LeavesOtherAttentionToOtherKernels) {
  LongBandPlan plan;
  const auto refused = [&](const PatternConfig& pattern, std::int64_t heads, std::int64_t n, std::int64_t batch) {
    const auto made = make_plan(pattern, 0, heads, n);
    return !find_long_band(args_of(*made, batch, 64), plan);
  };
  using enum PartKind;
  EXPECT_TRUE(refused(pattern_of(Integration::merged, {local}, 128), 8, 65536, 1)) << "a short band";
  EXPECT_TRUE(refused(pattern_of(Integration::merged, {dense}, 0), 8, 12288, 4)) << "too many visits";
  EXPECT_TRUE(refused(pattern_of(Integration::merged, {local}, 512), 8, 2048, 1)) << "too few chunks for the blocks";
  EXPECT_TRUE(refused(pattern_of(Integration::merged, {local, column}, 512), 8, 262144, 1)) << "two parts";
}

}  // namespace
}  // namespace longstride::kernels::cuda::sm90
