// Central finite differences, in double: (loss(x + h) - loss(x - h)) / 2h has a truncation error of h^2 and a rounding
// error of 1e-16 / h, so h = 1e-5 leaves about ten correct digits for a loss of order one.
#pragma once
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <string>

#include "framework/core/tensor.h"

namespace longstride::testing {

// Expects gradient[i] = d loss / d values[i] for every element (or, of a large tensor, about `most` spread over it).
// Both are contiguous f64 tensors; loss() reads `values`, which come back unchanged.
inline void expect_gradient(const std::string& name, const Tensor& values, const Tensor& gradient,
                            const std::function<double()>& loss, std::int64_t most = 200, double tolerance = 1e-7) {
  ASSERT_EQ(values.dtype(), Dtype::f64);
  ASSERT_EQ(gradient.dtype(), Dtype::f64);
  ASSERT_EQ(values.count(), gradient.count());
  constexpr double h = 1e-5;
  double* x = values.as<double>();
  const std::int64_t step = std::max<std::int64_t>(1, values.count() / most);
  for (std::int64_t i = 0; i < values.count(); i += step) {
    const double kept = x[i];
    x[i] = kept + h;
    const double above = loss();
    x[i] = kept - h;
    const double below = loss();
    x[i] = kept;
    const double expected = (above - below) / (2 * h), found = gradient.as<double>()[i];
    EXPECT_NEAR(found, expected, tolerance * std::max(1.0, std::abs(expected))) << name << "[" << i << "]";
  }
}

}  // namespace longstride::testing
