// The 8-bit formats and the scales of their rows, written from the specification's words (Micikevicius et al. 2022,
// tables 1 and 2) and apart from kernels/quantise: every number is listed, and the nearest is looked for.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "kernels/base/dtype.h"

namespace longstride::testing {

using kernels::Dtype;

// The numbers with codes 0, 1, ... up to the largest. e4m3: bias 7, three bits of fraction, no infinity, and S.1111.111
// is not a number. e5m2: bias 15, two bits of fraction, as IEEE formats are.
inline std::vector<double> positive_numbers(Dtype dtype) {
  std::vector<double> numbers;
  const bool e4m3 = dtype == Dtype::e4m3;
  const int fractions = e4m3 ? 8 : 4, bias = e4m3 ? 7 : 15, exponents = e4m3 ? 16 : 31;
  for (int e = 0; e < exponents; ++e)
    for (int f = 0; f < fractions; ++f)
      numbers.push_back(e == 0 ? std::pow(2.0, 1 - bias) * f / fractions
                               : std::pow(2.0, e - bias) * (1 + static_cast<double>(f) / fractions));
  if (e4m3) numbers.pop_back();
  return numbers;
}

class Fp8Reference {
 public:
  explicit Fp8Reference(Dtype dtype) : numbers_(positive_numbers(dtype)) {}
  double largest() const { return numbers_.back(); }
  double smallest() const { return numbers_[1]; }
  // Half the distance from 1 to the next number.
  double half_step() const { return (*std::upper_bound(numbers_.begin(), numbers_.end(), 1.0) - 1) / 2; }

  // The code of a finite number. Ties have the even code.
  int code(double x) const {
    const double magnitude = std::abs(x);
    auto above = std::upper_bound(numbers_.begin(), numbers_.end(), magnitude);
    auto found = std::prev(above);
    if (above != numbers_.end()) {
      const double down = magnitude - *found, up = *above - magnitude;
      if (up < down || (up == down && (found - numbers_.begin()) % 2 == 1)) found = above;
    }
    return static_cast<int>(found - numbers_.begin()) + (std::signbit(x) ? 128 : 0);
  }
  double value(int code) const {
    const double magnitude = numbers_.at(static_cast<std::size_t>(code & 127));
    return code >= 128 ? -magnitude : magnitude;
  }

  // The smallest power of two, no less than 2^-126, that brings all of the row into the format's range.
  double scale(const std::vector<double>& row) const {
    double most = 0, scale = 0x1p-126;
    for (const double x : row) most = std::max(most, std::abs(x));
    while (most / scale > largest()) scale *= 2;
    return scale;
  }
  // The numbers that the row becomes.
  std::vector<double> rounded(const std::vector<double>& row) const {
    const double s = scale(row);
    std::vector<double> out;
    for (const double x : row) out.push_back(value(code(x / s)) * s);
    return out;
  }

 private:
  std::vector<double> numbers_;
};

}  // namespace longstride::testing
