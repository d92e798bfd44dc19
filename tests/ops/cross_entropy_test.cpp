#include "framework/ops/cross_entropy.h"

#include "framework/core/errors.h"
#include "tests/gradients/finite_differences.h"
#include "tests/ops/reference.h"

namespace longstride {
namespace {

using testing::normals;
using testing::OwnedTensor;
using testing::TestContext;
using testing::tokens;
using testing::zeros;

template <class T>
OwnedTensor plain_losses(const OwnedTensor& hidden, const OwnedTensor& weight, const OwnedTensor& targets) {
  const OwnedTensor logits = testing::plain_linear<T>(hidden, weight, nullptr);
  const std::int64_t rows = logits->size(0), vocabulary = logits->size(1);
  OwnedTensor losses({rows}, kernels::DtypeOf<T>::value);
  for (std::int64_t r = 0; r < rows; ++r) {
    T most = static_cast<T>(logits.at(r * vocabulary)), sum = 0;
    for (std::int64_t j = 0; j < vocabulary; ++j) most = std::max(most, static_cast<T>(logits.at(r * vocabulary + j)));
    for (std::int64_t j = 0; j < vocabulary; ++j) sum += std::exp(static_cast<T>(logits.at(r * vocabulary + j)) - most);
    const T target = static_cast<T>(logits.at(r * vocabulary + static_cast<std::int64_t>(targets.at(r))));
    losses.set(r, std::log(sum) + most - target);
  }
  return losses;
}

struct Case {
  std::int64_t rows, width, vocabulary;
};

class CrossEntropyTest : public ::testing::TestWithParam<Case> {};

// The last has more rows than one chunk of logits in either type.
INSTANTIATE_TEST_SUITE_P(Sizes, CrossEntropyTest,
                         ::testing::Values(Case{1, 1, 1}, Case{1, 17, 256}, Case{17, 33, 7}, Case{513, 17, 256},
                                           Case{9001, 4, 200}));

TEST_P(CrossEntropyTest, LossesAreAsExactAsAPlainLoop) {
  const auto [rows, width, vocabulary] = GetParam();
  TestContext ctx;
  const OwnedTensor targets = tokens({rows}, 1, static_cast<std::uint32_t>(vocabulary));
  const auto run = [&](Dtype d, bool with_gradient) {
    const OwnedTensor hidden = normals({rows, width}, d, 1), weight = normals({vocabulary, width}, d, 2);
    OwnedTensor losses({rows}, d), dhidden({rows, width}, d), dweight({vocabulary, width}, d);
    if (with_gradient)
      ops::cross_entropy_with_gradient(ctx, hidden, weight, targets, 0.5, losses, dhidden, dweight);
    else
      ops::cross_entropy(ctx, hidden, weight, targets, losses);
    return losses;
  };
  const OwnedTensor hidden = normals({rows, width}, Dtype::f64, 1),
                    weight = normals({vocabulary, width}, Dtype::f64, 2);
  const OwnedTensor exact = plain_losses<double>(hidden, weight, targets);
  EXPECT_LT(testing::difference(run(Dtype::f64, false), exact).error, 1e-12);
  const OwnedTensor losses = run(Dtype::f32, false);
  testing::expect_as_exact_as_plain("losses", losses, plain_losses<float>(hidden, weight, targets), exact);
  EXPECT_LT(testing::difference(run(Dtype::f32, true), losses).error, 1e-6);
}

TEST(CrossEntropy, GradientsAreThoseOfFiniteDifferences) {
  TestContext ctx;
  const Dtype d = Dtype::f64;
  const OwnedTensor hidden = normals({2, 5, 6}, d, 1), weight = normals({13, 6}, d, 2), targets = tokens({2, 5}, 1, 13);
  OwnedTensor losses({2, 5}, d), dhidden({2, 5, 6}, d), dweight({13, 6}, d);
  const auto loss = [&] {
    ops::cross_entropy(ctx, hidden, weight, targets, losses);
    double total = 0;
    for (std::int64_t i = 0; i < 10; ++i) total += losses.at(i);
    return 0.25 * total;
  };
  ops::cross_entropy_with_gradient(ctx, hidden, weight, targets, 0.25, losses, dhidden, dweight);
  testing::expect_gradient("dhidden", hidden, dhidden, loss);
  testing::expect_gradient("dweight", weight, dweight, loss);
}

// Rows in different chunks of logits all reach the gradients.
TEST(CrossEntropy, ChunkedGradientsEqualThoseOfTheHalves) {
  TestContext ctx;
  const Dtype d = Dtype::f64;
  constexpr std::int64_t rows = 6000, width = 5, vocabulary = 200;
  const OwnedTensor hidden = normals({rows, width}, d, 1), weight = normals({vocabulary, width}, d, 2),
                    targets = tokens({rows}, 1, vocabulary);
  OwnedTensor losses({rows}, d), dhidden({rows, width}, d), dweight({vocabulary, width}, d);
  ops::cross_entropy_with_gradient(ctx, hidden, weight, targets, 1, losses, dhidden, dweight);
  OwnedTensor losses_2({rows}, d), dhidden_2({rows, width}, d), dweight_2({vocabulary, width}, d);
  for (std::int64_t begin = 0; begin < rows; begin += 1500)
    ops::cross_entropy_with_gradient(ctx, hidden->slice(0, begin, begin + 1500), weight,
                                     targets->slice(0, begin, begin + 1500), 1, losses_2->slice(0, begin, begin + 1500),
                                     dhidden_2->slice(0, begin, begin + 1500), dweight_2);
  EXPECT_LT(testing::difference(losses, losses_2).error, 1e-12);
  EXPECT_LT(testing::difference(dhidden, dhidden_2).error, 1e-12);
  EXPECT_LT(testing::difference(dweight, dweight_2).error, 1e-10);
}

TEST(CrossEntropy, LargeLogitsDoNotOverflow) {
  TestContext ctx;
  OwnedTensor hidden({2, 1}, Dtype::f32), weight({3, 1}, Dtype::f32), targets({2}, Dtype::u8), losses({2}, Dtype::f32);
  hidden.set(0, 1);
  hidden.set(1, -1);
  weight.set(0, 1000);
  weight.set(1, 999);
  weight.set(2, -1000);
  targets.set(1, 1);
  ops::cross_entropy(ctx, hidden, weight, targets, losses);
  EXPECT_NEAR(losses.at(0), std::log1p(std::exp(-1.0)), 1e-6);
  EXPECT_NEAR(losses.at(1), 1999.0, 1e-3);
}

// A zero output matrix, as a model starts with, gives log(vocabulary) exactly to rounding: 8 bits per byte.
TEST(CrossEntropy, UniformLogitsCostTheLogarithmOfTheVocabulary) {
  TestContext ctx;
  OwnedTensor losses({300}, Dtype::f32);
  ops::cross_entropy(ctx, normals({300, 8}, Dtype::f32, 1), zeros({256, 8}, Dtype::f32), tokens({300}, 1), losses);
  for (std::int64_t i = 0; i < 300; ++i) EXPECT_FLOAT_EQ(static_cast<float>(losses.at(i)), std::log(256.0f));
}

TEST(CrossEntropy, HoldsNoMoreLogitsThanAChunk) {
  TestContext ctx;
  constexpr std::int64_t rows = 20000;
  const OwnedTensor hidden = normals({rows, 2}, Dtype::f32, 1), weight = normals({256, 2}, Dtype::f32, 2);
  OwnedTensor losses({rows}, Dtype::f32);
  ops::cross_entropy(ctx, hidden, weight, tokens({rows}, 1), losses);
  EXPECT_LE(ctx.arena->high_water(), std::size_t{4} << 20);
  EXPECT_EQ(ctx.arena->scratch_used(), 0u);
}

TEST(CrossEntropy, ShapesThatDoNotMatchAreRefused) {
  TestContext ctx;
  const Dtype d = Dtype::f32;
  const OwnedTensor hidden = zeros({4, 8}, d), weight = zeros({256, 8}, d), losses = zeros({4}, d);
  EXPECT_THROW(ops::cross_entropy(ctx, hidden, zeros({256, 7}, d), tokens({4}, 1), losses), InternalError);
  EXPECT_THROW(ops::cross_entropy(ctx, hidden, weight, tokens({5}, 1), losses), InternalError);
  EXPECT_THROW(ops::cross_entropy(ctx, hidden, weight, zeros({4}, d), losses), InternalError);
}

}  // namespace
}  // namespace longstride
