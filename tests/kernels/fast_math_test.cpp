#include "kernels/base/fast_math.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "kernels/gemm/activation.h"

namespace longstride::kernels {
namespace {

// The error in units in the last place of the exact result, rounded to T.
template <class T, class Wide>
double ulps(T found, Wide exact) {
  const T rounded = static_cast<T>(exact);
  const Wide ulp = static_cast<Wide>(std::nextafter(rounded, std::numeric_limits<T>::infinity())) - rounded;
  return static_cast<double>(std::abs((static_cast<Wide>(found) - exact) / ulp));
}

// In blocks, so that the loop around exp_of is vectorised as in the kernels.
template <class T, class Wide>
double largest_error(Wide from, Wide to, int count) {
  constexpr int block = 1024;
  std::vector<T> x(block), y(block);
  double worst = 0;
  for (int begin = 0; begin < count; begin += block) {
    for (int i = 0; i < block; ++i) x[i] = static_cast<T>(from + (to - from) * (begin + i) / count);
    for (int i = 0; i < block; ++i) y[i] = exp_of(x[i]);
    for (int i = 0; i < block; ++i) worst = std::max(worst, ulps(y[i], std::exp(static_cast<Wide>(x[i]))));
  }
  return worst;
}

TEST(FastMath, ExponentialOfFloatIsWithinAnUlpAndAHalf) {
  EXPECT_LT((largest_error<float, double>(-87.3, 88.7, 1 << 20)), 1.5);
  EXPECT_LT((largest_error<float, double>(-1, 1, 1 << 18)), 1.5);
  EXPECT_LT((largest_error<float, double>(-103.9, -87.3, 1 << 16)), 1.5);  // subnormal results
}

TEST(FastMath, ExponentialOfDoubleIsWithinAnUlpAndAHalf) {
  EXPECT_LT((largest_error<double, long double>(-708, 709.7, 1 << 18)), 1.5);
  EXPECT_LT((largest_error<double, long double>(-1, 1, 1 << 17)), 1.5);
  EXPECT_LT((largest_error<double, long double>(-744, -708, 1 << 15)), 1.5);
}

template <class T>
void expect_limits() {
  const T infinity = std::numeric_limits<T>::infinity();
  EXPECT_EQ(exp_of(T(0)), T(1));
  EXPECT_EQ(exp_of(-T(0)), T(1));
  EXPECT_EQ(exp_of(-infinity), T(0));
  EXPECT_EQ(exp_of(std::numeric_limits<T>::lowest()), T(0));
  EXPECT_EQ(exp_of(infinity), infinity);
  EXPECT_EQ(exp_of(std::numeric_limits<T>::max()), infinity);
  EXPECT_TRUE(std::isnan(exp_of(std::numeric_limits<T>::quiet_NaN())));
  EXPECT_TRUE(std::isnan(exp_of(-std::numeric_limits<T>::quiet_NaN())));
  EXPECT_EQ(sigmoid_of(-infinity), T(0));
  EXPECT_EQ(sigmoid_of(infinity), T(1));
  EXPECT_EQ(sigmoid_of(T(0)), T(0.5));
}

TEST(FastMath, LimitsAreExact) {
  expect_limits<float>();
  expect_limits<double>();
}

TEST(FastMath, GeluSlopeIsTheDerivativeOfGelu) {
  for (double x = -8; x <= 8; x += 0.01) {
    const double h = 1e-5;
    EXPECT_NEAR(gelu_slope_of(x), (gelu_of(x + h) - gelu_of(x - h)) / (2 * h), 1e-9) << x;
    EXPECT_NEAR(gelu_of(x), x / (1 + std::exp(-1.702 * x)), 1e-14) << x;
  }
}

TEST(FastMath, GeluOfLargeNumbersIsFinite) {
  EXPECT_EQ(gelu_of(1000.0f), 1000.0f);
  EXPECT_EQ(gelu_of(-1000.0f), 0.0f);
  EXPECT_EQ(gelu_slope_of(1000.0f), 1.0f);
  EXPECT_EQ(gelu_slope_of(-1000.0f), 0.0f);
}

}  // namespace
}  // namespace longstride::kernels
