// Losses of where spans begin and end, their gradients, and the span that has the best scores.
#include <algorithm>
#include <cmath>

#include "kernels/span_loss/best_span.h"
#include "kernels/span_loss/span_loss.h"
#include "tests/ops/op_test.h"
#include "tests/support/finite_differences.h"

namespace longstride::testing {
namespace {

using kernels::SpanLossArgs;
using kernels::SpanPlaces;

class SpanLossTest : public OpTest {};
LONGSTRIDE_OP_TESTS(SpanLossTest);

// Rows of different ends, whose targets lie before them.
struct SpanCase {
  std::int64_t rows = 5, n;
  std::vector<double> ends, targets, weights;

  explicit SpanCase(std::int64_t positions) : n(positions), ends(static_cast<std::size_t>(rows * n), -1) {
    for (std::int64_t r = 0; r < rows; ++r) {
      const std::int64_t end = 1 + r * (n - 1) / (rows - 1), begin = (end - 1) * r / rows;
      ends[static_cast<std::size_t>(r * n)] = static_cast<double>(end);
      targets.insert(targets.end(), {static_cast<double>(begin), static_cast<double>(end - 1)});
      weights.insert(weights.end(), {r == 3 ? 0.0 : 0.5, r == 3 ? 0.0 : 2.0});
    }
  }
  std::int64_t end(std::int64_t row, bool whole) const {
    return whole ? n : static_cast<std::int64_t>(ends[static_cast<std::size_t>(row * n)]);
  }
};

// The best of all pairs.
SpanPlaces best_of_pairs(const Operand& logits, std::int64_t row, std::int64_t n, std::int64_t end) {
  const auto at = [&](std::int64_t t, std::int64_t c) { return logits.at((row * n + t) * 2 + c); };
  SpanPlaces best;
  double most = at(0, 0) + at(0, 1);
  for (std::int64_t j = 1; j < end; ++j)
    for (std::int64_t i = 1; i <= j; ++i)
      if (at(i, 0) + at(j, 1) > most) most = at(i, 0) + at(j, 1), best = {i, j};
  return best;
}

TEST_P(SpanLossTest, LossesAndGradientsAreAsExactAsAPlainLoop) {
  for (const std::int64_t n : {1, 7, 300, 2600})
    for (const bool whole : {false, true}) {
      const SpanCase c(n);
      const Operand logits = normals({c.rows, n, 2}, exact(), 1, 3);
      const Operand stored = with_values({c.rows, n}, Dtype::i32, c.ends),
                    targets = with_values({c.rows, 2}, Dtype::u16, c.targets),
                    weights = with_values({c.rows, 2}, Dtype::f32, c.weights), by = filled({1}, Dtype::f32, 64);
      Operand losses = result({c.rows, 2}, exact()), gradient = result({c.rows, n, 2}),
              right = result({c.rows, 2}, Dtype::f32);
      SpanLossArgs args{.logits = logits, .targets = targets, .losses = losses, .gradient = gradient, .scale = 0.25};
      if (!whole) args.end = stored->slice(1, 0, 1);
      args.loss_scale = by->as<float>();
      args.weights = weights;
      args.right = right;
      run(args, {&losses, &gradient, &right});
      std::vector<double> judged;
      for (std::int64_t r = 0; r < c.rows; ++r) {
        const SpanPlaces best = best_of_pairs(logits, r, n, c.end(r, whole)),
                         wanted{static_cast<std::int64_t>(c.targets[static_cast<std::size_t>(2 * r)]),
                                static_cast<std::int64_t>(c.targets[static_cast<std::size_t>(2 * r + 1)])};
        judged.push_back(best.first == wanted.first && best.last == wanted.last ? 1 : 0);
        judged.push_back(best.shared(wanted));
      }
      EXPECT_EQ(right.found(), judged) << n;
      // Losses, and behind them gradients.
      const auto plain = [&](auto zero) {
        using T = decltype(zero);
        std::vector<T> of_losses, of_logits(static_cast<std::size_t>(c.rows * n * 2), T(0));
        for (std::int64_t i = 0; i < 2 * c.rows; ++i) {
          const std::int64_t r = i / 2, choice = i % 2, end = c.end(r, whole);
          const auto x = [&](std::int64_t t) { return static_cast<T>(logits.at((r * n + t) * 2 + choice)); };
          const T weight = static_cast<T>(c.weights[static_cast<std::size_t>(i)]);
          const auto target = static_cast<std::int64_t>(c.targets[static_cast<std::size_t>(i)]);
          T most = x(0), sum = 0;
          for (std::int64_t t = 1; t < end; ++t) most = std::max(most, x(t));
          for (std::int64_t t = 0; t < end; ++t) sum += std::exp(x(t) - most);
          of_losses.push_back(weight * (std::log(sum) + most - x(target)));
          for (std::int64_t t = 0; t < end; ++t)
            of_logits[static_cast<std::size_t>((r * n + t) * 2 + choice)] =
                16 * weight * (std::exp(x(t) - most) / sum - (t == target ? T(1) : T(0)));
        }
        return std::pair(of_losses, of_logits);
      };
      expect_as_exact_as_plain("losses", losses, [&](auto zero) { return plain(zero).first; });
      expect_as_exact_as_plain("gradient", gradient, [&](auto zero) { return plain(zero).second; });
    }
}

TEST_P(SpanLossTest, LargeScoresNeitherOverflowNorHideTheSpan) {
  const Operand logits = with_values({1, 3, 2}, exact(), {-1e4, -1e4, 1e4, 0, 0, 1e4});
  const Operand targets = with_values({1, 2}, Dtype::u16, {1, 1});
  Operand losses = result({1, 2}, exact()), right = result({1, 2}, Dtype::f32);
  SpanLossArgs args{.logits = logits, .targets = targets, .losses = losses};
  args.right = right;
  run(args, {&losses, &right});
  EXPECT_EQ(losses.found(), (std::vector<double>{0, 1e4}));
  const std::vector<double> judged = right.found();
  EXPECT_EQ(judged[0], 0);
  EXPECT_FLOAT_EQ(static_cast<float>(judged[1]), 2.0f / 3);  // 1 .. 2 and 1 .. 1
}

TEST_P(SpanLossTest, GradientsEqualFiniteDifferences) {
  if (compute() != Dtype::f64) return;
  const Operand logits = normals({2, 9, 2}, exact(), 1, 2), losses = result({2, 2}), gradient = result({2, 9, 2});
  const Operand targets = with_values({2, 2}, Dtype::u16, {0, 0, 3, 5}), ends = with_values({2, 1}, Dtype::i32, {9, 6});
  SpanLossArgs args{.logits = logits, .end = ends, .targets = targets, .losses = losses, .gradient = gradient};
  ops::run(ctx, args);
  const Operand found = with_values({2, 9, 2}, Dtype::f64, gradient.found());
  expect_gradient("logits", logits, found, [&] {
    ops::run(ctx, args);
    double total = 0;
    for (const double loss : losses.found()) total += loss;
    return total;
  });
}

TEST(SpanPlaces, ShareTheirPositionsAndNoSpanEqualsItselfAlone) {
  EXPECT_EQ((SpanPlaces{2, 5}).shared({2, 5}), 1);
  EXPECT_EQ((SpanPlaces{2, 5}).shared({5, 8}), 0.25f);
  EXPECT_EQ((SpanPlaces{2, 5}).shared({6, 8}), 0);
  EXPECT_EQ((SpanPlaces{}).shared({1, 1}), 0);
  EXPECT_EQ((SpanPlaces{}).shared({}), 1);
}

}  // namespace
}  // namespace longstride::testing
