// The output head, and the loss on its own.
#include "framework/ops/cross_entropy.h"

#include "kernels/base/ids.h"
#include "kernels/softmax_cross_entropy/softmax_cross_entropy.h"
#include "tests/ops/op_test.h"
#include "tests/support/finite_differences.h"

namespace longstride::testing {
namespace {

using kernels::SoftmaxCrossEntropyArgs;

// Losses, or gradients (softmax - onehot) scale, of the logits `at(r)`, row by row.
template <class T, class At>
std::vector<T> plain(std::int64_t rows, std::int64_t vocabulary, const Operand& targets, At&& at, const double* scale) {
  std::vector<T> out;
  for (std::int64_t r = 0; r < rows; ++r) {
    const std::vector<T> logits = at(r);
    const T most = *std::max_element(logits.begin(), logits.end());
    T sum = 0;
    for (const T x : logits) sum += std::exp(x - most);
    const auto target = static_cast<std::size_t>(targets.at(r));
    if (scale == nullptr) out.push_back(std::log(sum) + most - logits[target]);
    for (std::int64_t v = 0; v < vocabulary && scale != nullptr; ++v)
      out.push_back(static_cast<T>(*scale) * (std::exp(logits[static_cast<std::size_t>(v)] - most) / sum -
                                              T(static_cast<std::size_t>(v) == target)));
  }
  return out;
}

class CrossEntropyTest : public OpTest {
 protected:
  Operand tokens(const Shape& shape, std::int64_t below) {
    std::vector<double> values;
    for (std::uint64_t i = 0; i < static_cast<std::uint64_t>(shape.count()); ++i)
      values.push_back(kernels::philox(7, i, 1, kernels::domain_of(kernels::Purpose::test, 1)).word[0] %
                       static_cast<std::uint32_t>(below));
    return with_values(shape, kernels::id_type(below), std::move(values));
  }
};
LONGSTRIDE_OP_TESTS(CrossEntropyTest);

TEST_P(CrossEntropyTest, LossesAndGradientsOfLogitsAreAsExactAsAPlainLoop) {
  for (const std::int64_t vocabulary : {1, 2, 17, 100, 128, 255, 256, 300, 1024, 65535})
    for (const std::int64_t rows : {1, vocabulary > 1024 ? 3 : 203})
      for (const bool scaled : {false, true}) {
        Operand logits = normals({rows, vocabulary}, exact(), 1, 6), losses = result({rows}, exact());
        Operand gradient = result({rows, vocabulary});
        const Operand targets = tokens({rows}, vocabulary), by = filled({1}, Dtype::f32, 65536);
        const double own = scaled ? 1.0 / 1024 : 0.5, scale = scaled ? 64 : 0.5;
        SoftmaxCrossEntropyArgs args{logits, targets, losses, gradient, own};
        if (scaled) args.loss_scale = by->as<float>();
        run(args, {&losses, &gradient});
        // A loss is a difference of logits.
        double largest = 0;
        for (const double x : logits.values()) largest = std::max(largest, std::abs(x));
        const auto expect = [&](const char* name, const Operand& found, const double* times) {
          expect_as_exact_as_plain(
              name + (" over " + std::to_string(vocabulary)), found,
              [&](auto zero) {
                using T = decltype(zero);
                const auto row = [&](std::int64_t r) {
                  const auto begin = logits.values().begin() + r * vocabulary;
                  return std::vector<T>(begin, begin + vocabulary);
                };
                return plain<T>(rows, vocabulary, targets, row, times);
              },
              times == nullptr ? largest * half_step_of(exact()) : 0);
        };
        expect("losses", losses, nullptr);
        expect("gradient", gradient, &scale);
        if (compute() != exact()) continue;
        const auto expected = gradient.raw(), expected_losses = losses.raw();
        args.gradient = {};
        run(args, {&losses});
        EXPECT_EQ(losses.raw(), expected_losses) << "without a gradient";
        args.gradient = logits;
        run(args, {&logits, &losses});
        EXPECT_EQ(logits.raw(), expected) << "in place";
        EXPECT_EQ(losses.raw(), expected_losses) << "in place";
      }
}

// A weight multiplies its row's loss and gradient; weights of 1 change no bit.
TEST_P(CrossEntropyTest, WeightsMultiplyLossesAndGradients) {
  for (const std::int64_t vocabulary : {17, 256, 300}) {
    constexpr std::int64_t rows = 203;
    const Operand logits = normals({rows, vocabulary}, exact(), 1, 6), targets = tokens({rows}, vocabulary);
    std::vector<double> values;
    for (std::int64_t r = 0; r < rows; ++r) values.push_back(r % 3 == 0 ? 0 : 0.5 * static_cast<double>(r % 3));
    const Operand weights = with_values({rows}, Dtype::f32, values), ones = filled({rows}, Dtype::f32, 1);
    Operand losses = result({rows}, exact()), weighted = result({rows}, exact()), same = result({rows}, exact());
    Operand gradient = result({rows, vocabulary}), of_weighted = result({rows, vocabulary}),
            of_same = result({rows, vocabulary});
    run(SoftmaxCrossEntropyArgs{logits, targets, losses, gradient, 0.5}, {&losses, &gradient});
    run(SoftmaxCrossEntropyArgs{logits, targets, weighted, of_weighted, 0.5, nullptr, weights},
        {&weighted, &of_weighted});
    run(SoftmaxCrossEntropyArgs{logits, targets, same, of_same, 0.5, nullptr, ones}, {&same, &of_same});
    EXPECT_EQ(same.raw(), losses.raw());
    EXPECT_EQ(of_same.raw(), gradient.raw());
    // The weights are 0, 1/2 and 1, so products are exact.
    const std::vector<double> plain_losses = losses.found(), found = weighted.found();
    const std::vector<double> plain_gradient = gradient.found(), found_gradient = of_weighted.found();
    for (std::size_t r = 0; r < values.size(); ++r) ASSERT_EQ(found[r], values[r] * plain_losses[r]) << r;
    const double tiny = compute() == Dtype::f16 ? 0x1p-24 : 0;  // halves of the smallest numbers are rounded
    for (std::size_t i = 0; i < found_gradient.size(); ++i)
      ASSERT_NEAR(found_gradient[i], values[i / static_cast<std::size_t>(vocabulary)] * plain_gradient[i], tiny) << i;
  }
}

// A target that shares the largest logit is right.
TEST_P(CrossEntropyTest, TellsWhichTargetsHaveTheLargestLogit) {
  for (const std::int64_t vocabulary : {1, 17, 128, 256, 260, 1024}) {
    constexpr std::int64_t rows = 203;
    Operand logits = normals({rows, vocabulary}, exact(), 1, 1), losses = result({rows}, exact());
    Operand right = result({rows}, Dtype::u8);
    std::vector<double> targets, expected;
    for (std::int64_t r = 0; r < rows; ++r) {
      const auto row = logits.values().begin() + r * vocabulary;
      const std::int64_t best = std::max_element(row, row + vocabulary) - row, target = r % 2 ? best : r % vocabulary;
      targets.push_back(static_cast<double>(target));
      expected.push_back(row[target] == row[best] ? 1 : 0);
    }
    const Operand asked = with_values({rows}, kernels::id_type(vocabulary), targets);
    SoftmaxCrossEntropyArgs args{logits, asked, losses};
    args.right = right;
    run(args, {&losses, &right});
    EXPECT_EQ(right.found(), expected) << vocabulary;
  }
}

struct Sizes {
  std::int64_t rows, width, vocabulary;
};

// The last has more rows than one chunk of logits.
TEST_P(CrossEntropyTest, LossesOfTheHeadAreAsExactAsAPlainLoop) {
  for (const Sizes& s :
       {Sizes{1, 1, 1}, Sizes{1, 17, 256}, Sizes{17, 33, 7}, Sizes{513, 17, 256}, Sizes{9001, 4, 200}}) {
    const Operand hidden = normals({s.rows, s.width}, 1), weight = normals({s.vocabulary, s.width}, 2);
    const Operand targets = tokens({s.rows}, s.vocabulary), bias = normals({s.vocabulary}, exact(), 4);
    Operand losses = result({s.rows}, exact());
    const bool biased = s.width == 17;
    ops::CrossEntropy head{hidden, weight, targets, losses};
    if (biased) head.bias = bias;
    repeat([&](Context& c) { ops::cross_entropy(c, head); }, {&losses});
    expect_as_exact_as_plain("losses", losses, [&](auto zero) {
      using T = decltype(zero);
      const auto row = [&](std::int64_t r) {
        std::vector<T> logits(static_cast<std::size_t>(s.vocabulary));
        for (std::int64_t i = 0; i < s.vocabulary * s.width; ++i)
          logits[static_cast<std::size_t>(i / s.width)] +=
              static_cast<T>(hidden.at(r * s.width + i % s.width)) * static_cast<T>(weight.at(i));
        for (std::int64_t v = 0; v < s.vocabulary && biased; ++v)
          logits[static_cast<std::size_t>(v)] += static_cast<T>(bias.at(v));
        return logits;
      };
      return plain<T>(s.rows, s.vocabulary, targets, row, nullptr);
    });
    Operand again = result({s.rows}, exact()), dhidden = result({s.rows, s.width});
    Operand dweight = filled({s.vocabulary, s.width}, exact(), 0), dbias = filled({s.vocabulary}, exact(), 0);
    head.losses = again;
    head.scale = 0.5;
    head.dhidden = dhidden;
    head.dweight = dweight;
    if (biased) head.dbias = dbias;
    repeat([&](Context& c) { ops::cross_entropy(c, head); }, {&again, &dhidden, &dweight, &dbias});
    EXPECT_EQ(again.raw(), losses.raw()) << "with a gradient";
  }
}

TEST_P(CrossEntropyTest, TheHeadsRowsHaveTheirWeightsAndTheLossScale) {
  constexpr std::int64_t rows = 203, width = 16, vocabulary = 64;
  const Operand hidden = normals({rows, width}, 1), weight = normals({vocabulary, width}, 2, 0.3);
  const Operand targets = tokens({rows}, vocabulary), by = filled({1}, Dtype::f32, 4);
  std::vector<double> values;
  for (std::int64_t r = 0; r < rows; ++r) values.push_back(0.5 * static_cast<double>(r % 3));
  const Operand weights = with_values({rows}, Dtype::f32, values);
  const auto run_head = [&](bool scaled, const Operand& losses, const Operand& dhidden) {
    const Operand dweight = filled({vocabulary, width}, exact(), 0);
    ops::CrossEntropy head{hidden, weight, targets, losses, 0.5, dhidden, dweight};
    if (scaled) head.weights = weights;
    ctx.loss_scale = scaled ? by->as<float>() : nullptr;
    ops::cross_entropy(ctx, head);
    ctx.loss_scale = nullptr;
  };
  const Operand plain_losses = result({rows}, exact()), losses = result({rows}, exact());
  const Operand plain_dhidden = result({rows, width}), dhidden = result({rows, width});
  run_head(false, plain_losses, plain_dhidden);
  run_head(true, losses, dhidden);
  // All are powers of two, which change no bit but where 16-bit numbers are tiny.
  const double tiny = compute() == Dtype::f16 ? 0x1p-18 : 0;
  const std::vector<double> expected = plain_losses.found(), found = losses.found();
  for (std::size_t r = 0; r < values.size(); ++r) ASSERT_EQ(found[r], values[r] * expected[r]) << r;
  const std::vector<double> expected_gradient = plain_dhidden.found(), found_gradient = dhidden.found();
  for (std::size_t i = 0; i < found_gradient.size(); ++i)
    ASSERT_NEAR(found_gradient[i], 4 * values[i / width] * expected_gradient[i], tiny) << i;
}

// Rows in different chunks of logits all reach the gradients. On a GPU the gradient of the logits is rounded to 16 bits
// before the two products, so the sum of its errors dominates.
TEST_P(CrossEntropyTest, ChunkedGradientsEqualThoseOfTheParts) {
  const std::int64_t rows = device() == Device::cpu ? 6000 : 100000, width = 64, vocabulary = 200, part = rows / 8;
  const Operand hidden = normals({rows, width}, 1), weight = normals({vocabulary, width}, 2, 0.3);
  const Operand targets = tokens({rows}, vocabulary), by = filled({1}, Dtype::f32, 1024);
  ctx.loss_scale = by->as<float>();
  const Operand losses = result({rows}, exact()), losses_2 = result({rows}, exact());
  const Operand dhidden = result({rows, width}), dhidden_2 = result({rows, width});
  const Operand dweight = normals({vocabulary, width}, exact(), 3),
                dweight_2 = normals({vocabulary, width}, exact(), 3);
  ops::cross_entropy(ctx, {hidden, weight, targets, losses, 1.0 / 64, dhidden, dweight});
  for (std::int64_t begin = 0; begin < rows; begin += part) {
    const auto here = [&](const Operand& o) { return o->slice(0, begin, begin + part); };
    ops::cross_entropy(ctx,
                       {here(hidden), weight, here(targets), here(losses_2), 1.0 / 64, here(dhidden_2), dweight_2});
  }
  const auto expect_near = [&](const char* name, const Operand& found, const Operand& expected) {
    const std::vector<double> a = found.found(), b = expected.found();
    double error = 0, magnitude = 0;
    for (std::size_t i = 0; i < a.size(); ++i) {
      error = std::max(error, std::abs(a[i] - b[i]));
      magnitude = std::max(magnitude, std::abs(b[i]));
    }
    EXPECT_LE(error, (compute() == Dtype::f64   ? 1e-12
                      : compute() == Dtype::f32 ? 2e-5
                                                : 4 * half_step_of(compute())) *
                         magnitude)
        << name;
  };
  expect_near("losses", losses_2, losses);
  expect_near("dhidden", dhidden_2, dhidden);
  expect_near("dweight", dweight_2, dweight);
}

TEST_P(CrossEntropyTest, GradientsEqualFiniteDifferences) {
  if (compute() != Dtype::f64) return;
  const Operand hidden = normals({2, 5, 6}, 1), weight = normals({13, 6}, 2), targets = tokens({2, 5}, 13);
  const Operand losses = result({2, 5}), dhidden = result({2, 5, 6}), dweight = filled({13, 6}, exact(), 0);
  const Operand bias = normals({13}, 3), dbias = filled({13}, exact(), 0);
  ops::CrossEntropy head{hidden, weight, targets, losses, 0.25};
  head.bias = bias;
  const auto loss = [&] {
    ops::cross_entropy(ctx, head);
    double total = 0;
    for (std::int64_t i = 0; i < 10; ++i) total += losses->as<double>()[i];
    return 0.25 * total;
  };
  ops::CrossEntropy with_gradients = head;
  with_gradients.dhidden = dhidden;
  with_gradients.dweight = dweight;
  with_gradients.dbias = dbias;
  ops::cross_entropy(ctx, with_gradients);
  expect_gradient("dhidden", hidden, dhidden, loss);
  expect_gradient("dweight", weight, dweight, loss);
  expect_gradient("dbias", bias, dbias, loss);
}

TEST_P(CrossEntropyTest, GradientsOfWeightedLossesOfWideIdsEqualFiniteDifferences) {
  if (compute() != Dtype::f64) return;
  const Operand hidden = normals({2, 5, 6}, 1), weight = normals({260, 6}, 2), targets = tokens({2, 5}, 260);
  const Operand weights = with_values({2, 5}, Dtype::f32, {0, 1, 0.25, 3, 1, 0, 0, 2, 1, 0.5});
  const Operand losses = result({2, 5}), dhidden = result({2, 5, 6}), dweight = filled({260, 6}, exact(), 0);
  const auto loss = [&] {
    ops::cross_entropy(ctx,
                       {.hidden = hidden, .weight = weight, .targets = targets, .losses = losses, .weights = weights});
    double total = 0;
    for (std::int64_t i = 0; i < 10; ++i) total += losses->as<double>()[i];
    return 0.25 * total;
  };
  ops::cross_entropy(ctx, {.hidden = hidden,
                           .weight = weight,
                           .targets = targets,
                           .losses = losses,
                           .scale = 0.25,
                           .dhidden = dhidden,
                           .dweight = dweight,
                           .weights = weights});
  expect_gradient("dhidden", hidden, dhidden, loss);
  expect_gradient("dweight", weight, dweight, loss);
}

TEST_P(CrossEntropyTest, LargeLogitsDoNotOverflow) {
  const double second = rounded(1023, compute());
  const Operand hidden = with_values({2, 1}, compute(), {1, -1}),
                weight = with_values({3, 1}, compute(), {1024, second, -1024});
  const Operand targets = with_values({2}, Dtype::u8, {0, 1}), losses = result({2}, exact());
  ops::cross_entropy(ctx, {hidden, weight, targets, losses});
  const std::vector<double> found = losses.found();
  EXPECT_NEAR(found[0], std::log1p(std::exp(second - 1024)), 1e-6);
  EXPECT_NEAR(found[1], second + 1024, 1e-3);
}

// A zero output matrix, as a model starts with, gives log(vocabulary) up to rounding: 8 bits per byte.
TEST_P(CrossEntropyTest, UniformLogitsCostTheLogarithmOfTheVocabulary) {
  const Operand hidden = normals({300, 8}, 1), weight = filled({256, 8}, compute(), 0), losses = result({300}, exact());
  ops::cross_entropy(ctx, {hidden, weight, tokens({300}, 256), losses});
  for (const double loss : losses.found()) EXPECT_FLOAT_EQ(static_cast<float>(loss), std::log(256.0f));
}

TEST_P(CrossEntropyTest, HoldsNoMoreLogitsThanAChunk) {
  const Operand hidden = normals({150000, 2}, 1), weight = normals({256, 2}, 2), losses = result({150000}, exact());
  ops::cross_entropy(ctx, {hidden, weight, tokens({150000}, 256), losses});
  EXPECT_LE(ctx.arena->high_water(), (device() == Device::cpu ? std::size_t{4} : std::size_t{64}) << 20);
  EXPECT_EQ(ctx.arena->scratch_used(), 0u);
}

TEST_P(CrossEntropyTest, RefusesShapesThatDoNotMatch) {
  const Operand hidden = normals({4, 8}, 1), weight = normals({256, 8}, 2), losses = result({4}, exact());
  EXPECT_THROW(ops::cross_entropy(ctx, {hidden, normals({256, 7}, 2), tokens({4}, 9), losses}), InternalError);
  EXPECT_THROW(ops::cross_entropy(ctx, {hidden, weight, tokens({5}, 9), losses}), InternalError);
  EXPECT_THROW(ops::cross_entropy(ctx, {hidden, weight, losses, losses}), InternalError);
}

}  // namespace
}  // namespace longstride::testing
