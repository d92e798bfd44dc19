// Parts of the heads of rows: means of rows, and losses of answers that hold each by itself.
#include <algorithm>
#include <cmath>

#include "kernels/binary_loss/binary_loss.h"
#include "kernels/mean_rows/mean_rows.h"
#include "tests/ops/op_test.h"
#include "tests/support/finite_differences.h"

namespace longstride::testing {
namespace {

using kernels::BinaryLossArgs;
using kernels::MeanRowsArgs;
using kernels::MeanRowsBackwardArgs;

class RowHeadsTest : public OpTest {};
LONGSTRIDE_OP_TESTS(RowHeadsTest);

TEST_P(RowHeadsTest, MeansAreOfTheRowsBeforeTheEndAndSoAreTheirGradients) {
  constexpr std::int64_t groups = 3;
  for (const std::int64_t width : {1, 33, 130})
    for (const std::int64_t rows : {1, 40, 333})
      for (const bool whole : {false, true}) {
        // Ends as they lie in the bounds of documents: one of every `rows`.
        std::vector<double> ends(static_cast<std::size_t>(groups * rows), -1);
        std::vector<std::int64_t> end(groups, rows);
        for (std::int64_t g = 0; g < groups && !whole; ++g) end[static_cast<std::size_t>(g)] = 1 + g * (rows - 1) / 2;
        for (std::int64_t g = 0; g < groups; ++g)
          ends[static_cast<std::size_t>(g * rows)] = static_cast<double>(end[static_cast<std::size_t>(g)]);
        const Operand stored = with_values({groups, rows}, Dtype::i32, ends);
        const Tensor bound = whole ? Tensor{} : stored->slice(1, 0, 1);
        const Operand x = normals({groups, rows, width}, 1), dy = normals({groups, 1, width}, 2);
        Operand y = result({groups, 1, width}), dx = result({groups, rows, width});
        run(MeanRowsArgs{x, bound, y}, {&y});
        run(MeanRowsBackwardArgs{dy, bound, dx}, {&dx});
        const auto last = [&](std::int64_t g) { return end[static_cast<std::size_t>(g)]; };
        expect_as_exact_as_plain("mean", y, [&](auto zero) {
          using T = decltype(zero);
          std::vector<T> out;
          for (std::int64_t g = 0; g < groups; ++g)
            for (std::int64_t c = 0; c < width; ++c) {
              T sum = 0;
              for (std::int64_t t = 0; t < last(g); ++t) sum += static_cast<T>(x.at((g * rows + t) * width + c));
              out.push_back(sum / static_cast<T>(last(g)));
            }
          return out;
        });
        expect_as_exact_as_plain("gradient", dx, [&](auto zero) {
          using T = decltype(zero);
          std::vector<T> out;
          for (std::int64_t i = 0; i < groups * rows; ++i)
            for (std::int64_t c = 0; c < width; ++c)
              out.push_back(i % rows < last(i / rows)
                                ? static_cast<T>(dy.at(i / rows * width + c)) / static_cast<T>(last(i / rows))
                                : T(0));
          return out;
        });
      }
}

TEST_P(RowHeadsTest, BinaryLossesAndGradientsAreAsExactAsAPlainLoop) {
  constexpr std::int64_t n = 701;
  Operand logits = normals({n}, exact(), 1, 6), losses = result({n}, exact()), gradient = result({n});
  Operand right = result({n}, Dtype::u8);
  std::vector<double> yes, weight, expected;
  for (std::int64_t i = 0; i < n; ++i) {
    yes.push_back(static_cast<double>(i % 3 == 0));
    weight.push_back(i % 5 == 0 ? 0 : 0.5);
    expected.push_back((logits.at(i) >= 0) == (i % 3 == 0) ? 1 : 0);
  }
  const Operand targets = with_values({n}, Dtype::u16, yes), weights = with_values({n}, Dtype::f32, weight);
  const Operand by = filled({1}, Dtype::f32, 64);
  BinaryLossArgs args{.logits = logits, .targets = targets, .losses = losses, .gradient = gradient, .scale = 0.25};
  args.loss_scale = by->as<float>();
  args.weights = weights;
  args.right = right;
  run(args, {&losses, &gradient, &right});
  EXPECT_EQ(right.found(), expected);
  const auto sigmoid = [](auto x) { return 1 / (1 + std::exp(-x)); };
  expect_as_exact_as_plain(
      "losses", losses,
      [&](auto zero) {
        using T = decltype(zero);
        std::vector<T> out;
        for (std::int64_t i = 0; i < n; ++i) {
          const T x = static_cast<T>(logits.at(i)), signed_x = yes[static_cast<std::size_t>(i)] > 0 ? x : -x;
          out.push_back(static_cast<T>(weight[static_cast<std::size_t>(i)]) *
                        (std::max(-signed_x, T(0)) + std::log1p(std::exp(-std::abs(x)))));
        }
        return out;
      },
      0);
  expect_as_exact_as_plain("gradient", gradient, [&](auto zero) {
    using T = decltype(zero);
    std::vector<T> out;
    for (std::int64_t i = 0; i < n; ++i)
      out.push_back(static_cast<T>(16 * weight[static_cast<std::size_t>(i)]) *
                    (sigmoid(static_cast<T>(logits.at(i))) - static_cast<T>(yes[static_cast<std::size_t>(i)])));
    return out;
  });
}

// Large logits neither overflow nor lose their loss.
TEST_P(RowHeadsTest, BinaryLossesOfLargeLogitsAreFinite) {
  const Operand logits = with_values({4}, exact(), {1e4, 1e4, -1e4, -1e4});
  const Operand targets = with_values({4}, Dtype::u16, {1, 0, 1, 0});
  Operand losses = result({4}, exact());
  run(BinaryLossArgs{.logits = logits, .targets = targets, .losses = losses}, {&losses});
  EXPECT_EQ(losses.found(), (std::vector<double>{0, 1e4, 1e4, 0}));
}

TEST_P(RowHeadsTest, GradientsEqualFiniteDifferences) {
  if (compute() != Dtype::f64) return;
  const Operand logits = normals({9}, exact(), 1, 2), losses = result({9}), gradient = result({9});
  const Operand targets = with_values({9}, Dtype::u16, {0, 1, 1, 0, 1, 0, 0, 1, 1});
  const BinaryLossArgs args{.logits = logits, .targets = targets, .losses = losses, .gradient = gradient};
  ops::run(ctx, args);
  const Operand found = with_values({9}, Dtype::f64, gradient.found());
  expect_gradient("logits", logits, found, [&] {
    ops::run(ctx, args);
    double total = 0;
    for (const double loss : losses.found()) total += loss;
    return total;
  });
}

}  // namespace
}  // namespace longstride::testing
