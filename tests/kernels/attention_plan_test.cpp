#include "kernels/attention/pattern/plan.h"

#include <gtest/gtest.h>
#include <omp.h>

#include <algorithm>
#include <limits>
#include <stdexcept>
#include <type_traits>

#include "kernels/attention/pattern/random_blocks.h"
#include "kernels/attention/pattern/tile_span.h"
#include "tests/kernels/attention_patterns.h"

namespace longstride::kernels {
namespace {

// The key tiles of a query tile, and the query tiles of a key tile, in every class.
TileSpan key_span(const AttentionPlan& plan, const Pass& pass, const Part& part, std::int32_t query_tile) {
  return key_tiles_of(part, pass.queries, part.keys, plan.tile, query_tile);
}
TileSpan query_span(const AttentionPlan& plan, const Pass& pass, const Part& part, std::int32_t key_tile) {
  return query_tiles_of(part, pass.queries, part.keys, plan.tile, key_tile);
}

std::int64_t tiles_of(const TileSpan& span) { return std::max(span.end - span.begin, 0); }

// How often each (i, j) of a head is reached, tile by tile, from the query tiles or the key tiles.
class Coverage {
 public:
  Coverage(const AttentionPlan& plan, std::int64_t head, bool by_key)
      : plan_(plan), by_key_(by_key), times_(static_cast<std::size_t>(plan.queries) * plan.n) {
    for (const Pass& pass : plan.passes_of(head))
      for (std::int32_t s = 0; s < pass.classes; ++s)
        for (const Part& part : plan.parts_of(pass))
          visit(pass, part, rows_within(pass.queries, s, plan.queries), rows_within(part.keys, s, plan.n), s);
  }
  int times(std::int64_t i, std::int64_t j) const { return times_[static_cast<std::size_t>(i * plan_.n + j)]; }
  std::string problem() const { return problem_; }

 private:
  void visit(const Pass& pass, const Part& part, const RowSet& queries, const RowSet& keys, std::int32_t residue) {
    const std::int32_t rows =
        by_key_ ? tiles_in(part.keys.length, plan_.tile.keys) : tiles_in(pass.queries.length, plan_.tile.queries);
    for (std::int32_t r = 0; r < rows; ++r) {
      std::int32_t previous = -1;
      for (TileWalk walk(by_key_ ? query_span(plan_, pass, part, r) : key_span(plan_, pass, part, r)); walk.more();
           walk.advance()) {
        const std::int32_t c = walk.tile();
        if (c <= previous) problem_ = "tiles are not increasing";
        previous = c;
        tile(part, queries, keys, by_key_ ? c : r, by_key_ ? r : c, walk.full(), residue);
      }
    }
  }

  void tile(const Part& part, const RowSet& queries, const RowSet& keys, std::int32_t q, std::int32_t k, bool full,
            std::int32_t residue) {
    const std::int32_t t_end = std::min((q + 1) * plan_.tile.queries, queries.length);
    const std::int32_t u_end = std::min((k + 1) * plan_.tile.keys, keys.length);
    bool any = false, all = true;
    for (std::int32_t t = q * plan_.tile.queries; t < t_end; ++t) {
      const Interval in = part.interval(keys, queries.position(t));
      for (std::int32_t u = k * plan_.tile.keys; u < u_end; ++u) {
        const bool inside = in.begin <= u && u < in.end;
        any |= inside;
        all &= inside;
        if (inside) ++times_[static_cast<std::size_t>(queries.position(t)) * plan_.n + keys.position(u)];
      }
    }
    if (full && !all) problem_ = "a full tile is not full";
    if (residue == 0 && !full && all) problem_ = "a full tile is marked partial";
    if (residue == 0 && !any) problem_ = "a tile has no allowed pair";
  }

  const AttentionPlan& plan_;
  bool by_key_;
  std::vector<unsigned char> times_;
  std::string problem_;
};

void expect_cover(const NamedPattern& p, std::int64_t layer, std::int64_t n, TileShape tile, std::int64_t queries = 0) {
  ASSERT_EQ(problem_of(p.pattern, p.heads, layer + 1), "") << p.name;
  const auto plan = make_plan(p.pattern, layer, p.heads, n, tile, queries);
  EXPECT_LE(std::max_element(plan->passes.begin(), plan->passes.end(),
                             [](const Pass& a, const Pass& b) { return a.parts < b.parts; })
                ->parts,
            most_parts_of_pass);
  for (std::int64_t head = 0; head < p.heads; ++head) {
    std::int64_t pairs = 0;
    for (bool by_key : {false, true}) {
      const Coverage cover(*plan, head, by_key);
      ASSERT_EQ(cover.problem(), "") << p.name << " layer " << layer << " head " << head << " n " << n;
      for (std::int64_t i = 0; i < plan->queries; ++i)
        for (std::int64_t j = 0; j < n; ++j) {
          const bool expected =
              allowed(p.pattern, layer, p.heads, head, std::max<std::int64_t>(n, plan->queries), i, j);
          pairs += expected;
          ASSERT_EQ(cover.times(i, j), expected ? 1 : 0)
              << p.name << (by_key ? " by key" : " by query") << " layer " << layer << " head " << head << " n " << n
              << " i " << i << " j " << j;
        }
    }
    ASSERT_EQ(2 * allowed_pairs(p.pattern, layer, p.heads, head, n, queries), pairs)
        << p.name << " head " << head << " n " << n << " queries " << queries;
  }
}

TEST(AttentionPlan, TilesOfEveryPatternCoverItsMaskExactlyOnce) {
  for (const NamedPattern& p : all_patterns()) {
    const std::int64_t layers =
        p.pattern.integration == Integration::interleaved ? static_cast<std::int64_t>(p.pattern.parts.size()) : 1;
    for (std::int64_t layer = 0; layer < layers; ++layer) {
      for (std::int64_t n : {1, 2, 6, 7, 15, 33, 50}) expect_cover(p, layer, n, {4, 4});
      for (std::int64_t n : {1, 31, 64, 75}) expect_cover(p, layer, n, {8, 3});
      for (std::int64_t n : {5, 97}) expect_cover(p, layer, n, {3, 10});
      if (p.pattern.stride % 7 == 0 || p.pattern.stride == 100) expect_cover(p, layer, 211, {});
    }
    if (HasFatalFailure()) return;
  }
}

TEST(AttentionPlan, TilesOfBothDirectionsCoverTheirMaskExactlyOnce) {
  for (const NamedPattern& p : patterns_of_both_directions()) {
    const std::int64_t layers =
        p.pattern.integration == Integration::interleaved ? static_cast<std::int64_t>(p.pattern.parts.size()) : 1;
    for (std::int64_t layer = 0; layer < layers; ++layer) {
      for (std::int64_t n : {1, 2, 7, 33, 50}) expect_cover(p, layer, n, {4, 4});
      for (std::int64_t queries : {1, 5, 16, 31, 90}) expect_cover(p, layer, 31, {8, 3}, queries);
      expect_cover(p, layer, 97, {3, 10}, 45);
      if (p.pattern.stride % 7 == 0 || p.pattern.stride == 100) expect_cover(p, layer, 190, {}, 211);
    }
    if (HasFatalFailure()) return;
  }
}

TEST(AttentionPlan, OneQueryHasTheKeysOfTheLastPosition) {
  for (const NamedPattern& p : all_patterns()) {
    if (has_lists(p.pattern, 0, p.heads)) continue;
    for (const std::int64_t n : {2, 7, 33, 50}) {
      const auto plan = make_plan(p.pattern, 0, p.heads, n, {4, 4}, 1);
      for (std::int64_t head = 0; head < p.heads; ++head) {
        const Coverage cover(*plan, head, false);
        for (std::int64_t j = 0; j < n; ++j)
          ASSERT_EQ(cover.times(0, j), allowed(p.pattern, 0, p.heads, head, n, n - 1, j) ? 1 : 0)
              << p.name << " head " << head << " n " << n << " j " << j;
      }
    }
  }
}

TEST(AttentionPlan, TellsWhetherEveryQuerySeesAKey) {
  std::vector<NamedPattern> patterns = all_patterns();
  for (const NamedPattern& p : patterns_of_both_directions()) patterns.push_back(p);
  for (const NamedPattern& p : patterns)
    for (const std::int64_t layer : {0, 1, 2})
      for (const std::int64_t n : {1, 2, 7, 33, 101}) {
        if (!problem_of(p.pattern, p.heads, layer + 1).empty()) continue;
        bool expected = true;
        for (std::int64_t head = 0; head < p.heads; ++head)
          for (std::int64_t i = 0; i < n; ++i) {
            bool sees = false;
            for (std::int64_t j = 0; j < n; ++j) sees |= allowed(p.pattern, layer, p.heads, head, n, i, j);
            expected &= sees;
          }
        EXPECT_EQ(every_query_sees_a_key(*make_plan(p.pattern, layer, p.heads, n)), expected)
            << p.name << " layer " << layer << " n " << n;
      }
}

// Takes the fastest of several runs: other programs may interrupt the rest.
TEST(AttentionPlan, AMillionPositionsTakeLessThanAMillisecond) {
  using enum Integration;
  using enum PartKind;
  for (const PatternConfig& p : {pattern_of(merged, {local}, 1024), pattern_of(merged, {column}, 1024),
                                 pattern_of(merged, {local, column}, 1024),
                                 with_options(pattern_of(merged, {fixed_block, fixed_summary}, 1024, {32}), true, true),
                                 pattern_of(merged, {dense}, 0)}) {
    double fastest = std::numeric_limits<double>::infinity();
    for (int i = 0; i < 10; ++i) {
      const double begin = omp_get_wtime();
      const auto plan = make_plan(p, 0, 16, std::int64_t{1} << 20);
      fastest = std::min(fastest, omp_get_wtime() - begin);
    }
    EXPECT_LT(fastest, 1e-3);
  }
}

TEST(AttentionPlan, HeadsShareEqualGeometriesOnly) {
  using enum Integration;
  using enum PartKind;
  PatternConfig p = pattern_of(merged, {fixed_block, fixed_summary}, 128, {32});
  auto plan = make_plan(p, 0, 8, 4096);
  EXPECT_EQ(plan->passes.size(), 1u);
  EXPECT_EQ(plan->parts.size(), 2u);
  p.distinct_heads = true;
  plan = make_plan(p, 0, 8, 4096);
  EXPECT_EQ(plan->passes.size(), 4u);
  EXPECT_EQ(plan->parts.size(), 8u);
  EXPECT_EQ(plan->passes_of(0).data(), plan->passes_of(4).data());
}

TEST(AttentionPlan, LayersWithEqualPartsShareAPlan) {
  using enum PartKind;
  PlanCache plans(pattern_of(Integration::interleaved, {column, local, local}, 16), 2);
  EXPECT_EQ(plans.get(1, 64), plans.get(2, 64));
  EXPECT_EQ(plans.get(0, 64), plans.get(3, 64));
  EXPECT_NE(plans.get(0, 64), plans.get(1, 64));
  EXPECT_NE(plans.get(0, 64), plans.get(0, 65));
}

TEST(AttentionPlan, RefusesLengthsAndPatternsThatItCannotPlan) {
  const PatternConfig dense = pattern_of(Integration::merged, {PartKind::dense}, 0);
  EXPECT_THROW(make_plan(dense, 0, 1, 0), std::invalid_argument);
  EXPECT_THROW(make_plan(dense, 0, 1, longest_plan + 1), std::invalid_argument);
  EXPECT_THROW(make_plan(pattern_of(Integration::merged, {PartKind::column}, 0), 0, 1, 8), std::invalid_argument);
  EXPECT_THROW(make_plan(dense, 0, 1, 8, {}, -1), std::invalid_argument);
  try {
    make_plan(dense, 0, 1, 8, {}, 7);
    ADD_FAILURE();
  } catch (const std::invalid_argument& refused) {
    EXPECT_STREQ(refused.what(),
                 "attention of 7 queries to 8 keys, but a pattern of the past takes as many queries as keys, "
                 "or 1, the last; use direction both");
  }
}

TEST(AttentionPlan, IsPlainDataForADevice) {
  EXPECT_TRUE(std::is_trivially_copyable_v<Part> && std::is_standard_layout_v<Part>);
  EXPECT_TRUE(std::is_trivially_copyable_v<Pass> && std::is_standard_layout_v<Pass>);
  EXPECT_TRUE(std::is_trivially_copyable_v<HeadPlan>);
}

// At the longest lengths the mask is too large to enumerate, so each row is checked through its interval.
TEST(AttentionPlan, LongSequencesDoNotOverflow) {
  using enum Integration;
  using enum PartKind;
  const std::int64_t n = longest_plan - 3;
  for (const PatternConfig& p :
       {pattern_of(merged, {local, column}, 4096), pattern_of(merged, {local, column}, 5),
        with_options(pattern_of(merged, {fixed_block, fixed_summary}, 4095, {100}), true, true),
        pattern_of(merged, {local, column}, std::int64_t{1} << 40)}) {
    const auto plan = make_plan(p, 0, 2, n);
    std::int64_t query_tiles = 0;
    for (const Pass& pass : plan->passes_of(1))
      for (const Part& part : plan->parts_of(pass)) {
        std::int64_t tiles = 0;
        const std::int32_t rows = tiles_in(pass.queries.length, plan->tile.queries);
        for (std::int32_t r = 0; r < rows; ++r) tiles += tiles_of(key_span(*plan, pass, part, r));
        for (std::int32_t r = 0; r < tiles_in(part.keys.length, plan->tile.keys); ++r)
          tiles -= tiles_of(query_span(*plan, pass, part, r));
        EXPECT_EQ(tiles, 0);
        query_tiles += rows;
      }
    EXPECT_GE(query_tiles, n / 64 / 5);
    for (std::int64_t i : {std::int64_t{0}, std::int64_t{12345}, n / 2, n - 1}) {
      std::int64_t seen = 0;
      for (const Pass& pass : plan->passes_of(1)) {
        const auto residue = static_cast<std::int32_t>(i % pass.classes);
        for (const Part& part : plan->parts_of(pass)) {
          const Interval in = part.interval(rows_within(part.keys, residue, plan->n), static_cast<std::int32_t>(i));
          seen += std::max(0, in.end - in.begin);
        }
      }
      // Pairs of the first i + 1 rows minus those of the first i.
      const std::int64_t expected = allowed_pairs(p, 0, 2, 1, i + 1) - (i > 0 ? allowed_pairs(p, 0, 2, 1, i) : 0);
      EXPECT_EQ(seen, expected) << "i " << i;
    }
  }
}

}  // namespace
}  // namespace longstride::kernels
