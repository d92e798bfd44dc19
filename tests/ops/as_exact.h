// Errors of an op, compared with those of a plain loop.
#pragma once
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "tests/support/rounding.h"

namespace longstride::testing {

// The difference that another order of the same arithmetic may cause, relative to the largest element: in f64 the
// twelfth digit; sums of up to 1,000 numbers in f32 differ by sqrt(1000) roundings, 16-bit results by one step.
inline double roundings(Dtype dtype) {
  return dtype == Dtype::f64 ? 1e-12 : (dtype == Dtype::f32 ? 32 : 2) * half_step_of(dtype);
}

// At most twice the errors of the naive values, rounded to the type, in the largest and in root mean square.
template <class Naive>
void expect_as_exact(const std::string& name, Dtype dtype, const std::vector<double>& values,
                     const std::vector<double>& right, const std::vector<Naive>& naive, double slack = 0) {
  double error = 0, naive_error = 0, magnitude = 0, squares[3] = {};
  for (std::size_t i = 0; i < values.size(); ++i) {
    const double e = std::abs(values[i] - right[i]);
    const double n = dtype == Dtype::f64 ? 0 : std::abs(rounded(static_cast<double>(naive[i]), dtype) - right[i]);
    error = e > error || std::isnan(e) ? e : error;
    naive_error = std::max(naive_error, n);
    magnitude = std::max(magnitude, std::abs(right[i]));
    squares[0] += e * e, squares[1] += n * n, squares[2] += right[i] * right[i];
  }
  const double floor = roundings(dtype);
  EXPECT_LE(error, 2 * naive_error + magnitude * floor + slack)
      << name << ": largest element " << magnitude << ", naive error " << naive_error;
  const auto rms = [&](double sum) { return std::sqrt(sum / static_cast<double>(values.size())); };
  EXPECT_LE(rms(squares[0]), 2 * rms(squares[1]) + rms(squares[2]) * floor + slack)
      << name << ", root mean square: elements " << rms(squares[2]) << ", naive error " << rms(squares[1]);
}

}  // namespace longstride::testing
