// The kernels that shapes call for, at every limit of the list in docs/develop/kernels.md. Advice and scratch follow
// from the same choice.
#include "kernels/attention/choice.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "kernels/attention/fast_path.h"
#include "tests/kernels/attention_patterns.h"

namespace longstride::kernels {
namespace {

using enum Integration;
using enum PartKind;
using enum AttentionFamily;

struct ChoiceCase {
  std::string name;
  PatternConfig pattern;
  std::int64_t heads, n, batch, key_size, value_size;
  AttentionFamily forward, backward;
  Dtype dtype = Dtype::bf16;
  AttentionPath path = AttentionPath::automatic;
};

PatternConfig window_of_keys(std::int64_t keys) { return pattern_of(merged, {local}, 0, {}, keys); }
PatternConfig columns_of(std::int64_t stride) { return pattern_of(merged, {column}, stride); }
PatternConfig all_keys() { return pattern_of(merged, {dense}, 0); }
PatternConfig fixed_of(std::vector<std::int64_t> widths, bool distinct = true, bool inclusive = false) {
  return with_options(pattern_of(merged, {fixed_block, fixed_summary}, 128, std::move(widths)), distinct, inclusive);
}

std::vector<ChoiceCase> choice_cases() {
  return {
      {"f32", window_of_keys(64), 8, 4096, 1, 64, 64, portable, portable, Dtype::f32},
      {"asked for", window_of_keys(64), 8, 4096, 1, 64, 64, portable, portable, Dtype::f16, AttentionPath::portable},
      {"keys of 136", all_keys(), 8, 4096, 1, 136, 64, portable, portable},
      {"values of 8", all_keys(), 8, 4096, 1, 64, 8, portable, portable},
      {"keys of 20", all_keys(), 8, 4096, 1, 20, 24, portable, portable},
      {"many kinds of rows", fixed_of({1, 2, 4, 8, 16}, false), 5, 4096, 1, 64, 64, portable, portable},
      {"129 heads", all_keys(), 129, 4096, 1, 64, 64, portable, portable},

      {"two passes", pattern_of(merged, {local, column}, 512), 8, 65536, 1, 64, 64, general, general},
      {"heads differ", pattern_of(multihead, {local, column}, 64), 8, 4096, 1, 64, 64, general, general},
      {"three parts", fixed_of({32}, true, true), 3, 1024, 1, 64, 64, general, general},
      {"a window", pattern_of(merged, {local, fixed_summary}, 128, {32}), 4, 1024, 1, 64, 64, general, general},
      {"two widths", fixed_of({32, 16}), 2, 1024, 1, 64, 64, general, general},
      {"no complete block", fixed_of({32}), 4, 100, 1, 64, 64, general, general},
      {"a column after the block", fixed_of({1}), 1, 1024, 1, 64, 64, general, general},
      {"every row a summary", fixed_of({128}), 1, 1024, 1, 64, 64, general, general},

      // A query tile sees (window + 126) / 64 key tiles.
      {"five tiles", window_of_keys(257), 8, 4096, 1, 32, 32, band, band},
      {"six tiles", window_of_keys(258), 8, 4096, 1, 32, 32, general, turns},
      {"five tiles", window_of_keys(257), 8, 4096, 1, 64, 64, band, band},
      {"nine tiles", window_of_keys(513), 8, 4096, 1, 32, 64, band, turns},
      {"ten tiles", window_of_keys(514), 8, 4096, 1, 64, 64, general, turns},
      {"four tiles", window_of_keys(193), 8, 4096, 1, 64, 128, band, band},
      {"five tiles", window_of_keys(257), 8, 4096, 1, 64, 128, general, band},
      {"keys of 72", window_of_keys(64), 8, 4096, 1, 72, 64, band, turns},
      {"blocks", pattern_of(merged, {fixed_block}, 256), 8, 4096, 1, 64, 64, band, band},
      {"blocks across tiles", pattern_of(merged, {fixed_block}, 300), 8, 4096, 1, 32, 32, general, turns},
      {"short columns", columns_of(128), 8, 32768, 1, 64, 64, band, band},

      {"short classes", columns_of(512), 8, 262144, 1, 64, 64, band, classes},
      {"short classes of large heads", columns_of(512), 8, 262144, 1, 128, 128, general, turns},
      {"79 of 132 blocks", all_keys(), 79, 512, 1, 64, 64, band, turns},
      {"80 of 132 blocks", all_keys(), 80, 512, 1, 64, 64, band, classes},
      {"one of 132 blocks", all_keys(), 1, 512, 1, 64, 64, band, classes, Dtype::bf16, AttentionPath::sm90},
      {"longer classes", all_keys(), 80, 513, 1, 64, 64, band, turns},
      {"dense", all_keys(), 8, 12288, 4, 64, 64, general, turns},

      {"own blocks and summaries", fixed_of({32}), 8, 12288, 8, 64, 64, general, joined},
      {"in pieces", fixed_of({24}), 5, 12288, 1, 32, 32, general, joined},
      {"of large heads", fixed_of({32}), 8, 1024, 1, 128, 128, general, joined},
  };
}

std::string text_of(const ChoiceCase& c) {
  return c.name + ", heads of " + std::to_string(c.key_size) + "/" + std::to_string(c.value_size);
}

TEST(AttentionChoices, AreThoseOfTheList) {
  for (const ChoiceCase& c : choice_cases()) {
    const auto plan = make_plan(c.pattern, 0, c.heads, c.n);
    const AttentionSizes sizes{plan.get(), c.batch, c.key_size, c.value_size, c.dtype, c.path};
    EXPECT_EQ(choose_forward(sizes).family, c.forward) << text_of(c);
    EXPECT_EQ(choose_backward(sizes).family, c.backward) << text_of(c);
  }
}

// Bounds leave the closed forms: documents in a window that is no wider than most of them take turns, and in short rows
// own blocks and summaries do. What bounds leave of any other window of all positions is intervals.
TEST(AttentionChoices, FollowBounds) {
  struct BoundedCase {
    PatternConfig pattern;
    AttentionFamily by_documents, by_bounds;
    std::int32_t n = 262144;
  };
  PatternConfig both = window_of_keys(513);
  both.direction = Direction::both;
  for (const BoundedCase& c : {BoundedCase{window_of_keys(64), turns, intervals},
                               {window_of_keys(2048), turns, intervals},
                               {window_of_keys(2049), intervals, intervals},
                               {all_keys(), intervals, intervals},
                               {columns_of(512), turns, general},
                               {fixed_of({32}), general, general},
                               {both, intervals, intervals},
                               {fixed_of({32}), joined, general, 16384},
                               {fixed_of({32}), general, general, 16385}}) {
    const auto plan = make_plan(c.pattern, 0, 8, c.n);
    AttentionSizes sizes{.plan = plan.get(), .key_size = 64, .value_size = 64, .bounds = 3};
    EXPECT_EQ(choose_forward(sizes).family, general);
    const AttentionChoice bounded = choose_backward(sizes);
    EXPECT_EQ(bounded.family, c.by_bounds);
    const std::size_t from_keys = 2u * 4 * 3 * static_cast<std::size_t>(c.n);
    EXPECT_EQ(bounded.sums_bytes, c.by_bounds == general ? from_keys : bounded.intervals.bounds_at() + from_keys);
    sizes.by_documents = true;
    EXPECT_EQ(choose_backward(sizes).family, c.by_documents);
    if (c.by_documents == intervals) {
      EXPECT_EQ(choose_backward(sizes).sums_bytes + from_keys, bounded.sums_bytes) << "documents are seen alike";
    }
  }
  PatternConfig neighbours = with_block(pattern_of(merged, {block_window}, 0), 64);
  neighbours.direction = Direction::both;
  for (const auto& [pattern, family] :
       {std::pair{neighbours, intervals}, {shifted_by(2, {8}), intervals}, {shifted_by(3, {7, 1}), general}}) {
    const auto plan = make_plan(pattern, 0, 8, 65536);
    EXPECT_EQ(choose_backward({.plan = plan.get(), .key_size = 64, .value_size = 64}).family, family);
  }
  // Other heads' keys are rotated where blocks are whole tiles, and begin nowhere else for documents.
  const PatternConfig shifted = shifted_by(4, {5, 2, 0, 1});
  for (const auto& [n, bounds, family] :
       {std::tuple{512, 0, intervals}, {512, 3, general}, {500, 0, general}, {640, 0, general}, {64, 0, general}}) {
    const auto plan = make_plan(shifted, 0, 8, n);
    const AttentionChoice choice =
        choose_backward({.plan = plan.get(), .key_size = 64, .value_size = 64, .bounds = bounds});
    EXPECT_EQ(choice.family, family) << n;
    if (family != intervals) continue;
    const cuda::sm90::KeyRotation& rotation = choice.intervals.rotation;
    EXPECT_EQ(rotation.tile_of(4, 7, 8), 7);
    EXPECT_EQ(rotation.tile_of(5, 5, 8), 7);
    EXPECT_EQ(rotation.tile_of(6, 6, 8), 0);
    EXPECT_EQ(rotation.tile_of(7, 2, 8), 0);
    EXPECT_EQ(rotation.tile_of(7, 8, 8), 14) << "behind the last tile";
  }
  const auto plan = make_plan(both, 0, 8, 65536);
  EXPECT_EQ(choose_backward({.plan = plan.get(), .key_size = 64, .value_size = 64}).family, intervals);
}

// Every family reads shared keys but the backward kernels of narrow bands, whose work others take.
TEST(AttentionChoices, OfSharedKeysHaveNoNarrowBandBackward) {
  for (const ChoiceCase& c : choice_cases()) {
    const auto plan = make_plan(c.pattern, 0, c.heads, c.n);
    AttentionSizes sizes{plan.get(), c.batch, c.key_size, c.value_size, c.dtype, c.path};
    sizes.key_heads = 1;
    if (c.heads == 1) continue;
    EXPECT_EQ(choose_forward(sizes).family, c.forward) << text_of(c);
    const AttentionFamily found = choose_backward(sizes).family;
    EXPECT_TRUE(c.backward == band ? found == turns || found == classes : found == c.backward) << text_of(c);
  }
}

// One query, whose keys are divided among as many blocks as a GPU holds; heads of a group are rows of one block.
TEST(AttentionChoices, OfOneQueryDivideItsKeys) {
  const auto plan = make_plan(window_of_keys(65536), 0, 64, 65536, {}, 1);
  AttentionSizes sizes{.plan = plan.get(), .batch = 1, .key_size = 128, .value_size = 128, .key_heads = 8};
  const AttentionChoice choice = choose_forward(sizes);
  EXPECT_EQ(choice.family, one_query);
  EXPECT_EQ(choice.one_query.rows, 8);
  EXPECT_EQ(choice.one_query.splits, 3 * 132 / 8);
  EXPECT_EQ(choice.sums_bytes, 64u * 49 * 129 * 4);
  EXPECT_EQ(choose_backward(sizes).family, portable);
  sizes.bounds = 64;  // every head has its own
  EXPECT_EQ(choose_forward(sizes).one_query.rows, 1);
  sizes.bounds = 0, sizes.key_heads = 1;
  EXPECT_EQ(choose_forward(sizes).one_query.rows, 16);
  sizes.path = AttentionPath::portable;
  EXPECT_EQ(choose_forward(sizes).family, portable);
  const auto differ = make_plan(pattern_of(multihead, {local, column}, 64), 0, 8, 4096, {}, 1);
  const AttentionSizes of_both{.plan = differ.get(), .key_size = 64, .value_size = 64, .key_heads = 1};
  EXPECT_EQ(choose_forward(of_both).one_query.rows, 1);
}

TEST(AttentionChoices, OfListsAreTheGeneralKernels) {
  const auto plan = make_plan(all_keys(), 0, 8, 65536), one_tile = make_plan(all_keys(), 0, 80, 64);
  for (const AttentionPlan* p : {plan.get(), one_tile.get()})
    for (const std::int64_t bounds : {0, 3}) {
      AttentionSizes sizes{.plan = p, .key_size = 64, .value_size = 64, .bounds = bounds, .has_lists = true};
      EXPECT_EQ(choose_forward(sizes).family, general);
      EXPECT_EQ(choose_backward(sizes).family, general);
      EXPECT_EQ(choose_backward(sizes).sums_bytes, static_cast<std::size_t>(2 * 4 * bounds * p->n));
      sizes.by_documents = true;
      EXPECT_EQ(choose_backward(sizes).family, general);
      sizes.dtype = Dtype::f32;
      EXPECT_EQ(choose_forward(sizes).family, portable);
      EXPECT_EQ(choose_backward(sizes).family, portable);
    }
  PatternConfig both = all_keys();
  both.direction = Direction::both;
  const auto fewer_queries = make_plan(both, 0, 8, 4096, {}, 64);
  const AttentionSizes sizes{.plan = fewer_queries.get(), .key_size = 64, .value_size = 64, .has_lists = true};
  EXPECT_EQ(choose_forward(sizes).family, portable);
  EXPECT_EQ(choose_backward(sizes).family, portable);
}

TEST(AttentionChoices, ArePortableWithPlacesAndWithDistancesOfGroups) {
  for (const ChoiceCase& c : choice_cases()) {
    const auto plan = make_plan(c.pattern, 0, c.heads, c.n);
    AttentionSizes sizes{plan.get(), c.batch, c.key_size, c.value_size, c.dtype, c.path};
    sizes.labels = 6;
    sizes.mixed_labels = true;
    EXPECT_EQ(choose_forward(sizes).family, portable) << text_of(c);
    EXPECT_EQ(choose_backward(sizes).family, portable) << text_of(c);
  }
}

TEST(AttentionChoices, AreGeneralWithLabelsAndOtherQueriesThanKeysOfRowsInOrder) {
  PatternConfig window = pattern_of(Integration::merged, {PartKind::local}, 0, {}, 513), both = all_keys();
  window.direction = both.direction = Direction::both;
  const auto expect = [](AttentionFamily family, const PatternConfig& pattern, std::int64_t queries,
                         AttentionSizes sizes) {
    const auto plan = make_plan(pattern, 0, 8, 4096, {}, queries);
    sizes.plan = plan.get();
    if (sizes.key_size == 0) sizes.key_size = 64;
    sizes.value_size = 64;
    EXPECT_EQ(choose_forward(sizes).family, family);
    EXPECT_EQ(choose_backward(sizes).family, family);
    if (family != general || sizes.labels == 0) return;
    const std::size_t rows = static_cast<std::size_t>(plan->queries) * 8,
                      labels = static_cast<std::size_t>(sizes.labels);
    EXPECT_EQ(choose_forward(sizes).label_bytes, 4 * rows * labels);
    EXPECT_GE(choose_backward(sizes).sums_bytes, 4 * 2 * rows * labels);
  };
  expect(general, window, 4096, {.labels = 25});
  expect(general, window, 4096, {.bounds = 1, .by_documents = true, .labels = 25});
  for (const std::int64_t labels : {0, 2})
    for (const std::int64_t queries : {64, 5000}) expect(general, both, queries, {.bounds = 1, .labels = labels});
  expect(portable, window, 4096, {.dtype = Dtype::f32, .labels = 25});
  expect(portable, window, 4096, {.path = AttentionPath::portable, .labels = 25});
  expect(portable, window, 4096, {.key_size = 128, .labels = 25});
  expect(portable, both, 64, {.key_size = 128});
  expect(portable, both, 4096, {.has_lists = true, .labels = 2});
  PatternConfig columns = pattern_of(Integration::merged, {PartKind::column}, 16);
  columns.direction = Direction::both;
  expect(portable, columns, 4096, {.labels = 25});
}

TEST(AttentionChoices, GiveTheScratchThatKernelsDivide) {
  for (const ChoiceCase& c : choice_cases()) {
    const auto plan = make_plan(c.pattern, 0, c.heads, c.n);
    AttentionArgs forward;
    forward.plan = plan.get();
    forward.path = c.path;
    forward.q = forward.k = Tensor(nullptr, c.dtype, {c.batch, c.n, c.heads, c.key_size});
    forward.v = Tensor(nullptr, c.dtype, {c.batch, c.n, c.heads, c.value_size});
    AttentionBackwardArgs backward;
    backward.plan = plan.get();
    backward.path = c.path;
    backward.q = backward.k = forward.q;
    backward.v = forward.v;
    const AttentionChoice choice = choose(backward);
    ASSERT_EQ(choose(forward).family, c.forward) << text_of(c);
    ASSERT_EQ(choice.family, c.backward) << text_of(c);
    // Sums of dQ and, behind them, a counter per slot and one of the tasks taken.
    std::size_t sums = 0;
    if (choice.family == turns || choice.family == joined) {
      const cuda::sm90::LongBandPlan& tasks = choice.family == turns ? choice.long_band : choice.joined.turns;
      sums = tasks.slots() * 64 * static_cast<std::size_t>(tasks.head) * 4 + (tasks.slots() + 1) * 4;
    }
    const auto rows = static_cast<std::size_t>(c.batch * c.n * c.heads);
    EXPECT_EQ(choice.delta_bytes, (rows * 4 + 255) / 256 * 256) << text_of(c);
    EXPECT_EQ(choice.sums_bytes, sums) << text_of(c);
    EXPECT_EQ(forward.scratch_on(Device::cuda).bytes(), 0u) << text_of(c);
    EXPECT_EQ(backward.scratch_on(Device::cuda).bytes(), choice.delta_bytes + sums) << text_of(c);
    if (c.heads == 1) continue;
    // Heads that share keys have gradients of keys and values of their own, in whole lines.
    backward.k = Tensor(nullptr, c.dtype, {c.batch, c.n, 1, c.key_size});
    backward.v = Tensor(nullptr, c.dtype, {c.batch, c.n, 1, c.value_size});
    std::size_t gradients = 0;
    for (const std::int64_t size : {c.key_size, c.value_size})
      gradients += (rows * static_cast<std::size_t>(size) * bytes_of(c.dtype) + 255) / 256 * 256;
    const AttentionChoice shared = choose(backward);
    EXPECT_EQ(backward.scratch_on(Device::cuda).bytes(), gradients + shared.delta_bytes + shared.sums_bytes)
        << text_of(c);
  }
}

TEST(AttentionChoices, GiveBlocksThatShareATileTheirScratch) {
  PatternConfig both = all_keys();
  both.direction = Direction::both;
  const auto plan = make_plan(both, 0, 8, 4096, {}, 16);
  AttentionArgs forward;
  forward.plan = plan.get();
  forward.q = Tensor(nullptr, Dtype::bf16, {1, 16, 8, 64});
  forward.k = forward.v = Tensor(nullptr, Dtype::bf16, {1, 4096, 8, 64});
  const AttentionChoice choice = choose(forward);
  EXPECT_EQ(choice.query_shares, 8);  // 512 keys each
  EXPECT_EQ(choice.sums_bytes, static_cast<std::size_t>(8 * 16 * 8 * (64 * 2 + 4)));
  EXPECT_EQ(forward.scratch_on(Device::cuda).bytes(), choice.sums_bytes);
}

TEST(AttentionChoices, ShareTheQueriesOfFewKeys) {
  PatternConfig pattern = window_of_keys(513);
  pattern.parts.push_back(PartKind::first);
  pattern.integration = merged;
  pattern.first = 64;
  for (const Direction direction : {Direction::past, Direction::both}) {
    pattern.direction = direction;
    const auto plan = make_plan(pattern, 0, 8, 65536);
    const AttentionChoice choice = choose_backward({plan.get(), 1, 64, 64});
    EXPECT_EQ(choice.family, general);
    EXPECT_EQ(choice.key_shares, 16);  // 4,096 queries each
    EXPECT_EQ(choice.query_shares, 1);
    EXPECT_EQ(choice.sums_bytes, static_cast<std::size_t>(2 * 4 * 16 * 8 * 64 * 64));
    EXPECT_EQ(choose_backward({plan.get(), 24, 64, 64}).key_shares, 1);   // blocks enough
    EXPECT_EQ(choose_backward({plan.get(), 1, 128, 128}).key_shares, 1);  // kernels of labels have no such heads
  }
}

TEST(AttentionChoices, AreWhatAdviceSaysOfSixteenBits) {
  for (const ChoiceCase& c : choice_cases()) {
    const auto plan = make_plan(c.pattern, 0, c.heads, c.n);
    const Slowness found = fast_path_of(*plan, c.key_size, c.value_size).slowness;
    const bool is_portable = choose_backward({plan.get(), c.batch, c.key_size, c.value_size}).family == portable;
    EXPECT_EQ(found == Slowness::head_size || found == Slowness::geometry, is_portable) << text_of(c);
  }
}

}  // namespace
}  // namespace longstride::kernels
