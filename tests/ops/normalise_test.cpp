#include "framework/ops/normalise.h"

#include "framework/core/errors.h"
#include "tests/gradients/finite_differences.h"
#include "tests/ops/reference.h"

namespace longstride {
namespace {

using testing::dot;
using testing::normals;
using testing::OwnedTensor;
using testing::TestContext;
using testing::zeros;

constexpr float epsilon = 1e-5f;

struct Case {
  std::int64_t rows, width;
};

class LayerNormTest : public ::testing::TestWithParam<Case> {};

INSTANTIATE_TEST_SUITE_P(Sizes, LayerNormTest,
                         ::testing::Values(Case{1, 17}, Case{5, 2}, Case{17, 513}, Case{513, 17}, Case{200, 96}));

template <class T>
OwnedTensor plain_layer_norm(const OwnedTensor& x, const OwnedTensor& gain, const OwnedTensor& bias) {
  const std::int64_t rows = x->size(0), width = x->size(1);
  OwnedTensor y({rows, width}, kernels::DtypeOf<T>::value);
  for (std::int64_t r = 0; r < rows; ++r) {
    T mean = 0, variance = 0;
    for (std::int64_t j = 0; j < width; ++j) mean += static_cast<T>(x.at(r * width + j));
    mean /= static_cast<T>(width);
    for (std::int64_t j = 0; j < width; ++j) {
      const T d = static_cast<T>(x.at(r * width + j)) - mean;
      variance += d * d;
    }
    const T rstd = 1 / std::sqrt(variance / static_cast<T>(width) + static_cast<T>(epsilon));
    for (std::int64_t j = 0; j < width; ++j)
      y.set(r * width + j, (static_cast<T>(x.at(r * width + j)) - mean) * rstd * static_cast<T>(gain.at(j)) +
                               static_cast<T>(bias.at(j)));
  }
  return y;
}

template <class T>
OwnedTensor plain_layer_norm_backward(const OwnedTensor& dy, const OwnedTensor& x, const OwnedTensor& gain) {
  const std::int64_t rows = x->size(0), width = x->size(1);
  const T n = static_cast<T>(width);
  OwnedTensor dx({rows, width}, kernels::DtypeOf<T>::value);
  for (std::int64_t r = 0; r < rows; ++r) {
    const auto value = [&](const OwnedTensor& t, std::int64_t j) { return static_cast<T>(t.at(r * width + j)); };
    T mean = 0, variance = 0, sum_g = 0, sum_gh = 0;
    for (std::int64_t j = 0; j < width; ++j) mean += value(x, j);
    mean /= n;
    for (std::int64_t j = 0; j < width; ++j) variance += (value(x, j) - mean) * (value(x, j) - mean);
    const T rstd = 1 / std::sqrt(variance / n + static_cast<T>(epsilon));
    for (std::int64_t j = 0; j < width; ++j) {
      const T g = value(dy, j) * static_cast<T>(gain.at(j));
      sum_g += g;
      sum_gh += g * ((value(x, j) - mean) * rstd);
    }
    for (std::int64_t j = 0; j < width; ++j) {
      const T g = value(dy, j) * static_cast<T>(gain.at(j)), h = (value(x, j) - mean) * rstd;
      dx.set(r * width + j, rstd * (g - sum_g / n - h * (sum_gh / n)));
    }
  }
  return dx;
}

TEST_P(LayerNormTest, IsAsExactAsAPlainLoop) {
  const auto [rows, width] = GetParam();
  TestContext ctx;
  const OwnedTensor x = normals({rows, width}, Dtype::f64, 1, 3), gain = normals({width}, Dtype::f64, 2),
                    bias = normals({width}, Dtype::f64, 3), dy = normals({rows, width}, Dtype::f64, 4);
  const auto run = [&](Dtype d, OwnedTensor& dx) {
    const OwnedTensor x_d = normals({rows, width}, d, 1, 3), gain_d = normals({width}, d, 2);
    OwnedTensor y({rows, width}, d), mean({rows}, d), rstd({rows}, d), dgain({width}, d), dbias({width}, d);
    ops::layer_norm(ctx, x_d, gain_d, normals({width}, d, 3), epsilon, y, mean, rstd);
    ops::layer_norm_backward(ctx, normals({rows, width}, d, 4), x_d, gain_d, mean, rstd, dx, false, dgain, dbias);
    return y;
  };
  OwnedTensor dx64({rows, width}, Dtype::f64), dx32({rows, width}, Dtype::f32);
  const OwnedTensor exact = plain_layer_norm<double>(x, gain, bias);
  const OwnedTensor exact_dx = plain_layer_norm_backward<double>(dy, x, gain);
  EXPECT_LT(testing::difference(run(Dtype::f64, dx64), exact).error, 1e-12);
  EXPECT_LT(testing::difference(dx64, exact_dx).error, 1e-11);
  testing::expect_as_exact_as_plain("y", run(Dtype::f32, dx32), plain_layer_norm<float>(x, gain, bias), exact);
  testing::expect_as_exact_as_plain("dx", dx32, plain_layer_norm_backward<float>(dy, x, gain), exact_dx);
}

// A width of 1 has no variance: y is the bias, and the terms of dx cancel to within their rounding.
TEST(LayerNorm, AWidthOfOneGivesTheBiasAndNoGradient) {
  TestContext ctx;
  const Dtype d = Dtype::f32;
  const OwnedTensor x = normals({9, 1}, d, 1), gain = normals({1}, d, 2), bias = normals({1}, d, 3),
                    dy = normals({9, 1}, d, 4);
  OwnedTensor y({9, 1}, d), mean({9}, d), rstd({9}, d), dx({9, 1}, d), dgain({1}, d), dbias({1}, d);
  ops::layer_norm(ctx, x, gain, bias, epsilon, y, mean, rstd);
  ops::layer_norm_backward(ctx, dy, x, gain, mean, rstd, dx, false, dgain, dbias);
  EXPECT_EQ(dgain.at(0), 0.0);
  for (std::int64_t r = 0; r < 9; ++r) {
    EXPECT_EQ(y.at(r), bias.at(0));
    const double term = rstd.at(r) * std::abs(dy.at(r) * gain.at(0));
    EXPECT_LE(std::abs(dx.at(r)), term * std::numeric_limits<float>::epsilon());
  }
}

TEST(LayerNorm, SurvivesAMeanFarLargerThanTheDeviation) {
  TestContext ctx;
  OwnedTensor x = normals({4, 64}, Dtype::f32, 1);
  for (std::int64_t i = 0; i < x->count(); ++i) x.set(i, 4096 + std::round(8 * x.at(i)) / 8);
  OwnedTensor gain({64}, Dtype::f32), y({4, 64}, Dtype::f32);
  for (std::int64_t j = 0; j < 64; ++j) gain.set(j, 1);
  ops::layer_norm(ctx, x, gain, zeros({64}, Dtype::f32), epsilon, y, {}, {});
  const OwnedTensor exact = plain_layer_norm<double>(x, gain, zeros({64}, Dtype::f32));
  EXPECT_LT(testing::difference(y, exact).error, 1e-3);
}

TEST(LayerNorm, GradientsAreThoseOfFiniteDifferences) {
  TestContext ctx;
  const Dtype d = Dtype::f64;
  const OwnedTensor x = normals({2, 35, 7}, d, 1), gain = normals({7}, d, 2), bias = normals({7}, d, 3),
                    dy = normals({2, 35, 7}, d, 4), residual = normals({2, 35, 7}, d, 5);
  OwnedTensor y({2, 35, 7}, d), mean({70}, d), rstd({70}, d), dgain({7}, d), dbias({7}, d), dx = residual;
  // The residual stream's own gradient goes around the norm: loss = <y, dy> + <x, residual>.
  const auto loss = [&] {
    ops::layer_norm(ctx, x, gain, bias, epsilon, y, mean, rstd);
    return dot(y, dy) + dot(x, residual);
  };
  loss();
  ops::layer_norm_backward(ctx, dy, x, gain, mean, rstd, dx, true, dgain, dbias);
  testing::expect_gradient("dx", x, dx, loss, 500);
  testing::expect_gradient("dgain", gain, dgain, loss);
  testing::expect_gradient("dbias", bias, dbias, loss);

  OwnedTensor alone = normals({2, 35, 7}, d, 6), in_place = dy;
  const OwnedTensor dgain_once = dgain;
  ops::layer_norm_backward(ctx, dy, x, gain, mean, rstd, alone, false, dgain, dbias);
  ops::layer_norm_backward(ctx, in_place, x, gain, mean, rstd, in_place, false, dgain, dbias);
  EXPECT_EQ(alone, in_place);
  for (std::int64_t i = 0; i < x->count(); ++i) EXPECT_NEAR(alone.at(i) + residual.at(i), dx.at(i), 1e-13);
  for (std::int64_t j = 0; j < 7; ++j) EXPECT_NEAR(dgain.at(j), 3 * dgain_once.at(j), 1e-12);
}

TEST(LayerNorm, ShapesThatDoNotMatchAreRefused) {
  TestContext ctx;
  const Dtype d = Dtype::f32;
  const OwnedTensor x = zeros({3, 8}, d), y = zeros({3, 8}, d), eight = zeros({8}, d);
  EXPECT_THROW(ops::layer_norm(ctx, x, zeros({7}, d), eight, epsilon, y, {}, {}), InternalError);
  EXPECT_THROW(ops::layer_norm(ctx, x, eight, eight, epsilon, zeros({4, 8}, d), {}, {}), InternalError);
  EXPECT_THROW(ops::layer_norm(ctx, x, eight, eight, epsilon, y, zeros({4}, d), {}), InternalError);
  EXPECT_THROW(ops::layer_norm(ctx, x, zeros({8}, Dtype::f64), eight, epsilon, y, {}, {}), InternalError);
}

}  // namespace
}  // namespace longstride
