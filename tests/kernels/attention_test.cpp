#include "kernels/attention/attention.h"

#include <gtest/gtest.h>

#include "tests/kernels/attention_patterns.h"
#include "tests/kernels/attention_reference.h"
#include "tests/support/drawn_lists.h"

namespace longstride::kernels {
namespace {

using enum Integration;
using enum PartKind;

std::int64_t layers_of(const PatternConfig& p) {
  return p.integration == interleaved ? static_cast<std::int64_t>(p.parts.size()) : 1;
}

template <class T>
void compute(const AttentionPlan& plan, const AttentionShape& shape, AttentionData<T>& x,
             const BlockLists& lists = {}) {
  run_forward(plan, shape, x, {}, lists);
  run_backward(plan, shape, x, {}, lists);
}

void expect_equals_reference(const NamedPattern& p, std::int64_t layer, std::int64_t n, TileShape tile,
                             std::int64_t queries = 0) {
  const AttentionShape shape{1, n, p.heads, 3, 5, queries};
  AttentionData<double> expected(shape), x(shape);
  reference_attention(p.pattern, layer, shape, expected);
  compute(*make_plan(p.pattern, layer, p.heads, n, tile, queries), shape, x);
  const std::string where = p.name + ", layer " + std::to_string(layer) + ", n " + std::to_string(n);
  ASSERT_LT(error_of(x.o, expected.o), 1e-13) << where;
  ASSERT_LT(error_of(x.lse, expected.lse), 1e-13) << where;
  ASSERT_LT(error_of(x.dq, expected.dq), 1e-12) << where;
  ASSERT_LT(error_of(x.dk, expected.dk), 1e-12) << where;
  ASSERT_LT(error_of(x.dv, expected.dv), 1e-12) << where;
}

TEST(Attention, OutputAndGradientsOfEveryPatternEqualTheDenseComputation) {
  const Threads one(1);  // so little work that threads would mostly wait
  for (const NamedPattern& p : all_patterns()) {
    for (std::int64_t layer = 0; layer < layers_of(p.pattern); ++layer) {
      expect_equals_reference(p, layer, 1, {});
      expect_equals_reference(p, layer, 45, {16, 8});
      expect_equals_reference(p, layer, 150, {});
    }
    if (HasFatalFailure()) return;
  }
}

TEST(Attention, BothDirectionsAndOtherQueriesEqualTheDenseComputation) {
  const Threads one(1);
  for (const NamedPattern& p : patterns_of_both_directions()) {
    for (std::int64_t layer = 0; layer < layers_of(p.pattern); ++layer) {
      expect_equals_reference(p, layer, 45, {16, 8});
      for (const std::int64_t queries : {1, 31, 97}) expect_equals_reference(p, layer, 45, {16, 8}, queries);
    }
    if (HasFatalFailure()) return;
  }
}

// Several sequences and heads, and rows wider than one vector of the processor.
TEST(Attention, SequencesAndHeadsAreIndependent) {
  const PatternConfig p = with_options(pattern_of(merged, {fixed_block, fixed_summary}, 32, {8}), true, false);
  const AttentionShape shape{3, 100, 4, 40, 72};
  AttentionData<double> expected(shape), x(shape);
  reference_attention(p, 0, shape, expected);
  compute(*make_plan(p, 0, 4, 100), shape, x);
  EXPECT_LT(error_of(x.o, expected.o), 1e-13);
  EXPECT_LT(error_of(x.dq, expected.dq), 1e-13);
  EXPECT_LT(error_of(x.dk, expected.dk), 1e-13);
  EXPECT_LT(error_of(x.dv, expected.dv), 1e-13);
}

// The tolerance is measured, not chosen: twice the error of the textbook computation in f32.
TEST(Attention, ErrorInSinglePrecisionIsAtMostTwiceThatOfTheDenseComputation) {
  for (const PatternConfig& p :
       {pattern_of(merged, {dense}, 0), pattern_of(merged, {local, column}, 24),
        pattern_of(merged, {fixed_block, fixed_summary}, 64, {16}), pattern_of(multihead, {local, column}, 20)}) {
    const AttentionShape shape{1, 300, 2, 32, 48};
    AttentionData<double> exact(shape);
    AttentionData<float> naive(shape), x(shape);
    reference_attention(p, 0, shape, exact);
    reference_attention(p, 0, shape, naive);
    compute(*make_plan(p, 0, 2, 300), shape, x);
    EXPECT_LT(error_of(x.o, exact.o), 2 * error_of(naive.o, exact.o));
    EXPECT_LT(error_of(x.lse, exact.lse), 2 * error_of(naive.lse, exact.lse));
    EXPECT_LT(error_of(x.dq, exact.dq), 2 * error_of(naive.dq, exact.dq));
    EXPECT_LT(error_of(x.dk, exact.dk), 2 * error_of(naive.dk, exact.dk));
    EXPECT_LT(error_of(x.dv, exact.dv), 2 * error_of(naive.dv, exact.dv));
  }
}

TEST(Attention, GradientsAreFiniteDifferencesOfTheOutput) {
  const Threads one(1);
  for (const PatternConfig& p :
       {pattern_of(merged, {local, column}, 5), pattern_of(merged, {fixed_block, fixed_summary}, 6, {2}),
        pattern_of(interleaved, {fixed_summary}, 6, {2})}) {
    const AttentionShape shape{1, 23, 2, 3, 4};
    const auto plan = make_plan(p, 0, 2, 23, {16, 8});
    AttentionData<double> x(shape);
    compute(*plan, shape, x);
    const auto loss = [&] {
      AttentionData<double> y = x;
      run_forward(*plan, shape, y);
      double sum = 0;
      for (std::size_t i = 0; i < y.o.size(); ++i) sum += y.o[i] * y.dout[i];
      return sum;
    };
    for (const auto& [input, gradient] : {std::pair{&x.q, &x.dq}, {&x.k, &x.dk}, {&x.v, &x.dv}})
      for (std::size_t i = 0; i < input->size(); ++i) {
        const double before = (*input)[i], step = 1e-5;
        (*input)[i] = before + step;
        const double above = loss();
        (*input)[i] = before - step;
        const double below = loss();
        (*input)[i] = before;
        EXPECT_NEAR((*gradient)[i], (above - below) / (2 * step), 1e-8);
      }
  }
}

TEST(Attention, ARowThatMayAttendToNothingIsZeroWithoutGradient) {
  const PatternConfig p = pattern_of(interleaved, {fixed_summary}, 16, {4});
  const AttentionShape shape{1, 40, 1, 8, 8};
  AttentionData<float> x(shape);
  compute(*make_plan(p, 0, 1, 40), shape, x);
  for (std::size_t i = 0; i < 12 * 8; ++i) {
    EXPECT_EQ(x.o[i], 0);
    EXPECT_EQ(x.dq[i], 0);
    EXPECT_EQ(x.dk[i], 0);
  }
  for (std::size_t i = 0; i < 12; ++i) EXPECT_EQ(x.lse[i], -std::numeric_limits<float>::infinity());
  for (const auto* all : {&x.o, &x.dq, &x.dk, &x.dv})
    for (float value : *all) EXPECT_TRUE(std::isfinite(value));
}

// Scores far beyond the range of exp, and rows whose largest score comes last.
TEST(Attention, LargeScoresDoNotOverflow) {
  const PatternConfig p = pattern_of(merged, {local, column}, 8);
  const AttentionShape shape{1, 70, 1, 16, 16};
  AttentionData<double> expected(shape), x(shape);
  for (auto* data : {&expected, &x})
    for (std::size_t i = 0; i < data->k.size(); ++i) data->k[i] *= static_cast<double>(10 * (i / 16));
  reference_attention(p, 0, shape, expected);
  compute(*make_plan(p, 0, 1, 70, {16, 8}), shape, x);
  EXPECT_LT(error_of(x.o, expected.o), 1e-12);
  EXPECT_LT(error_of(x.dv, expected.dv), 1e-12);
}

template <class T>
bool same_bits(const std::vector<T>& a, const std::vector<T>& b) {
  return std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0;
}

// For one sequence and head, few threads process whole classes, and more threads single tiles.
TEST(Attention, ResultDoesNotDependOnTheNumberOfThreads) {
  const DrawnLists drawn(3, 64, 1, 2, 500, 500);
  for (const PatternConfig& p :
       {pattern_of(merged, {dense}, 0), pattern_of(merged, {local, column}, 24),
        with_options(pattern_of(merged, {local, fixed_summary}, 32, {8}), true, true),
        with_options(pattern_of(merged, {fixed_block, fixed_summary}, 100, {16}), true, true)}) {
    const AttentionShape shape{1, 500, 2, 24, 32};
    const auto plan = make_plan(p, 0, 2, 500);
    const BlockLists lists = p.parts[0] == dense ? drawn.view() : BlockLists{};
    AttentionData<float> one(shape);
    {
      const Threads threads(1);
      compute(*plan, shape, one, lists);
    }
    for (int count : {2, 3, 5}) {
      const Threads threads(count);
      AttentionData<float> x(shape);
      compute(*plan, shape, x, lists);
      EXPECT_TRUE(same_bits(x.o, one.o) && same_bits(x.lse, one.lse)) << count << " threads";
      EXPECT_TRUE(same_bits(x.dq, one.dq)) << count << " threads";
      EXPECT_TRUE(same_bits(x.dk, one.dk)) << count << " threads";
      EXPECT_TRUE(same_bits(x.dv, one.dv)) << count << " threads";
    }
  }
}

TEST(Attention, RefusesListsThatDoNotFit) {
  const AttentionShape shape{1, 150, 2, 8, 8};
  const DrawnLists lists(5, 64, 1, 2, 150, 150), longer(5, 64, 1, 2, 200, 150), of_three(5, 64, 1, 3, 150, 150);
  const auto all = make_plan(pattern_of(merged, {dense}, 0), 0, 2, 150);
  const auto refused = [&](const AttentionPlan& plan, BlockLists given, bool backward = false) -> std::string {
    AttentionData<float> x(shape);
    try {
      backward ? run_backward(plan, shape, x, {}, given) : run_forward(plan, shape, x, {}, given);
    } catch (const std::exception& error) {
      return error.what();
    }
    return "";
  };
  const auto says = [](const std::string& found, const std::string& sentence) {
    EXPECT_NE(found.find(sentence), std::string::npos) << found;
  };
  BlockLists given = lists.view();
  EXPECT_EQ(refused(*all, given), "");
  given.block = 96;
  says(refused(*all, given), "lists have blocks of 96, but must have a multiple of 64 and of tiles of 64 and 64");
  says(refused(*make_plan(pattern_of(merged, {dense}, 0), 0, 2, 150, {64, 24}), lists.view()), "of tiles of 64 and 24");
  says(refused(*make_plan(pattern_of(merged, {local}, 8), 0, 2, 150), lists.view()), "lists restrict one dense part");
  const std::string shapes = "lists are (1, 2, 5) of i32, but must be contiguous (1 or 1, 2 or 1, 4) of i32";
  says(refused(*all, longer.view()), shapes);
  says(refused(*all, of_three.view()), "lists are (1, 3, 4) of i32");
  given = lists.view();
  given.keys = Tensor(given.keys.data(), Dtype::f32, given.keys.shape());
  says(refused(*all, given), "lists are (1, 2, 9) of f32, but must be contiguous (1 or 1, 2 or 1, 9) of i32");
  given = lists.view();
  given.queries = {};
  EXPECT_EQ(refused(*all, given), "");
  says(refused(*all, given, true), "attention's lists are");
}

}  // namespace
}  // namespace longstride::kernels
