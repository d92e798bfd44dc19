// Errors of attention, compared with those of a naive computation of the same precision.
#pragma once
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "tests/support/dense_attention.h"

namespace longstride::kernels {

// One step of a type, relative to x.
inline double ulp_of(Dtype dtype) { return dtype == Dtype::bf16 ? 0x1p-7 : dtype == Dtype::f16 ? 0x1p-10 : 0x1p-23; }

// Largest and root-mean-square difference; equal infinities are equal, NaN is the largest of all.
struct Difference {
  double largest = 0, rms = 0;
};
inline Difference difference_of(const std::vector<double>& a, const std::vector<double>& b) {
  Difference d;
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (a[i] == b[i]) continue;
    const double e = std::abs(a[i] - b[i]);
    if (!std::isfinite(e)) return {std::numeric_limits<double>::infinity(), std::numeric_limits<double>::infinity()};
    d.largest = std::max(d.largest, e);
    d.rms += e * e;
  }
  d.rms = std::sqrt(d.rms / static_cast<double>(std::max<std::size_t>(a.size(), 1)));
  return d;
}
inline double rms_of(const std::vector<double>& a) {
  double sum = 0, count = 0;
  for (double x : a)
    if (std::isfinite(x)) {
      sum += x * x;
      count += 1;
    }
  return std::sqrt(sum / std::max(count, 1.0));
}

inline double largest_of(const std::vector<double>& a) {
  double largest = 0;
  for (double x : a)
    if (std::isfinite(x)) largest = std::max(largest, std::abs(x));
  return largest;
}

// The errors of a result, and what they may be, summed over one or several inputs: at most twice the error of the naive
// computation, plus what another order of the same sums may cause, one rounding of f32 at the size of the summed terms,
// and one of the type at the size of the result. With few large elements the naive rounding error may happen to be
// almost zero.
struct ErrorBudget {
  Difference mine, allowed;

  void add(const std::vector<double>& x, const std::vector<double>& naive, const std::vector<double>& exact,
           Dtype dtype, const std::vector<double>& terms) {
    const Difference found = difference_of(x, exact), by_naive = difference_of(naive, exact);
    const double rounding = ulp_of(dtype) / 2, term_rounding = ulp_of(Dtype::f32) / 2;
    mine.largest += found.largest;
    mine.rms += found.rms;
    allowed.largest += 2 * by_naive.largest + rounding * largest_of(exact) + term_rounding * largest_of(terms);
    allowed.rms += 2 * by_naive.rms + rounding * rms_of(exact) + term_rounding * rms_of(terms);
  }
  bool holds() const { return mine.largest <= allowed.largest && mine.rms <= allowed.rms; }
  void expect(const std::string& name, const std::string& where) const {
    EXPECT_LE(mine.largest, allowed.largest) << name << ", largest error, " << where;
    EXPECT_LE(mine.rms, allowed.rms) << name << ", rms error, " << where;
  }
};

inline void expect_as_good_as_naive(const char* name, const std::vector<double>& x, const std::vector<double>& naive,
                                    const std::vector<double>& exact, Dtype dtype, const std::vector<double>& terms,
                                    const std::string& where) {
  ErrorBudget budget;
  budget.add(x, naive, exact, dtype, terms);
  budget.expect(name, where);
}

// A head's sum over its rows of -exp(sink - lse) (dout . o), from o and lse as a call stored them.
template <class A>
std::vector<double> sink_gradient(const AttentionResult& x, const AttentionInput& in, bool magnitudes) {
  const std::vector<double> sinks = sinks_of(in.shape);
  const std::int64_t heads = in.shape.heads, size = in.shape.value_size, rows = in.shape.n_q();
  std::vector<A> sums(sinks.size());
  for (std::int64_t row = 0; row < in.shape.batch * rows; ++row)
    for (std::size_t h = 0; h < sinks.size(); ++h) {
      const std::int64_t at = row * heads + static_cast<std::int64_t>(h);
      const double lse = x.lse[static_cast<std::size_t>((at / heads / rows * heads + at % heads) * rows + row % rows)];
      A dot = 0;
      for (auto e = static_cast<std::size_t>(at * size); e < static_cast<std::size_t>((at + 1) * size); ++e) {
        const A term = static_cast<A>(in.dout[e]) * static_cast<A>(x.o[e]);
        dot += magnitudes ? std::abs(term) : -term;
      }
      sums[h] += std::exp(static_cast<A>(sinks[h]) - static_cast<A>(lse)) * dot;
    }
  return {sums.begin(), sums.end()};
}

// dsink only where the call had sinks.
inline void expect_as_good_as_naive(const AttentionResult& x, const AttentionResult& naive,
                                    const AttentionResult& exact, const AttentionInput& in, const std::string& where) {
  expect_as_good_as_naive("o", x.o, naive.o, exact.o, in.dtype, {}, where);
  expect_as_good_as_naive("lse", x.lse, naive.lse, exact.lse, Dtype::f32, exact.lse_terms, where);
  expect_as_good_as_naive("dq", x.dq, naive.dq, exact.dq, in.dtype, exact.dq_terms, where);
  expect_as_good_as_naive("dk", x.dk, naive.dk, exact.dk, in.dtype, exact.dk_terms, where);
  expect_as_good_as_naive("dv", x.dv, naive.dv, exact.dv, in.dtype, exact.dv_terms, where);
  if (x.dsink.empty()) return;
  expect_as_good_as_naive("dsink", x.dsink, sink_gradient<float>(x, in, false), sink_gradient<double>(x, in, false),
                          Dtype::f32, sink_gradient<double>(x, in, true), where);
}

}  // namespace longstride::kernels
