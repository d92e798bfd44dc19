// The plainest loops, in the precision of T: in double they are the reference; in float they tell what error a
// straightforward computation has, and an op may have at most twice that.
#pragma once
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tests/gradients/test_tensors.h"

namespace longstride::testing {

// y = x W^T + b
template <class T>
OwnedTensor plain_linear(const OwnedTensor& x, const OwnedTensor& w, const OwnedTensor* bias) {
  const std::int64_t rows = x->size(0), in = x->size(1), out = w->size(0);
  OwnedTensor y({rows, out}, kernels::DtypeOf<T>::value);
  for (std::int64_t r = 0; r < rows; ++r)
    for (std::int64_t o = 0; o < out; ++o) {
      T sum = 0;
      for (std::int64_t i = 0; i < in; ++i) sum += static_cast<T>(x.at(r * in + i)) * static_cast<T>(w.at(o * in + i));
      y.set(r * out + o, bias != nullptr ? sum + static_cast<T>(bias->at(o)) : sum);
    }
  return y;
}

// z = a^T b, summed over rows.
template <class T>
OwnedTensor plain_transposed_product(const OwnedTensor& a, const OwnedTensor& b) {
  const std::int64_t rows = a->size(0), m = a->size(1), n = b->size(1);
  OwnedTensor z({m, n}, kernels::DtypeOf<T>::value);
  for (std::int64_t i = 0; i < m; ++i)
    for (std::int64_t j = 0; j < n; ++j) {
      T sum = 0;
      for (std::int64_t r = 0; r < rows; ++r) sum += static_cast<T>(a.at(r * m + i)) * static_cast<T>(b.at(r * n + j));
      z.set(i * n + j, sum);
    }
  return z;
}

// The op's error may be at most twice that of the plain loop in the same precision; where the plain loop happens to be
// exact, one rounding of the largest element is allowed.
inline void expect_as_exact_as_plain(const char* name, const OwnedTensor& found, const OwnedTensor& plain,
                                     const OwnedTensor& exact) {
  const Difference f = difference(found, exact), p = difference(plain, exact);
  EXPECT_LE(f.error, 2 * p.error + f.magnitude * std::numeric_limits<float>::epsilon()) << name;
}

}  // namespace longstride::testing
