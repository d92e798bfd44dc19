// Drawn arguments of the scan, and its results by the recurrence.
#pragma once
#include <fmt/format.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "kernels/scan/naive.h"
#include "tests/support/drawn_normals.h"
#include "tests/support/rounding.h"

namespace longstride::testing {

using kernels::Shape;

enum class ScanDecay : std::uint8_t { none, head, channel };

struct ScanShape {
  kernels::ScanForm form = kernels::ScanForm::sum;
  ScanDecay decay = ScanDecay::none;
  bool normalised = false, both = false, groups = false, states = false;
  std::int64_t batch = 1, n = 1, heads = 1, key_size = 16, value_size = 16;
  double strength = 0.3;  // decays have logarithms of -strength times squares of normal numbers
  std::int64_t run = 0;   // positions per saved state; 0: chosen
  bool extremes = true;   // decays of 1, of all but 0 and of 0, b of 0 and 2
  bool known = false;     // decays, whose gradient is not asked for

  std::int64_t columns() const { return value_size + (normalised ? 1 : 0); }
  Shape keys() const { return {batch, n, heads, key_size}; }
  Shape values() const { return {batch, n, heads, value_size}; }
  Shape rows() const { return {batch, n, heads}; }
  Shape state() const { return {batch, heads, key_size, columns()}; }
  Shape decays() const { return decay == ScanDecay::channel ? keys() : rows(); }
  std::string text() const {
    constexpr const char* forms[] = {"sum", "gated", "delta"};
    return fmt::format("{}, decay {}, normalised {}, both {}, groups {}, states {}, batch {}, n {}, heads {}, {} x {}",
                       forms[static_cast<int>(form)], static_cast<int>(decay), normalised, both, groups, states, batch,
                       n, heads, key_size, value_size);
  }
};

// Every combination that the op takes.
inline std::vector<ScanShape> scan_shapes() {
  using enum kernels::ScanForm;
  std::vector<ScanShape> shapes;
  for (const auto form : {sum, gated, delta})
    for (const auto decay : {ScanDecay::none, ScanDecay::head, ScanDecay::channel})
      for (int bits = 0; bits < 16; ++bits) {
        const ScanShape s{form, decay, (bits & 1) != 0, (bits & 2) != 0, (bits & 4) != 0, (bits & 8) != 0};
        const bool decays = decay != ScanDecay::none;
        if ((form == sum && decays) || (form == gated && !decays) || (form == delta && s.normalised)) continue;
        if (s.both && (form != sum || s.states)) continue;
        shapes.push_back(s);
      }
  return shapes;
}

// Arguments, rounded to the types that they are stored in; the optional ones are empty.
struct ScanInput {
  ScanShape shape;
  std::vector<double> q, k, v, dout, decay = {}, beta = {}, first_state = {}, dlast_state = {};
  std::vector<std::int32_t> bounds = {};

  // stored: the type of operands of products.
  template <class A>
  kernels::NaiveScanResult<A> naive(Dtype stored) const {
    const auto given = [](const std::vector<double>& x) { return x.empty() ? nullptr : x.data(); };
    return kernels::NaiveScanner<A>({.form = shape.form,
                                     .batch = shape.batch,
                                     .n = shape.n,
                                     .heads = shape.heads,
                                     .key_size = shape.key_size,
                                     .value_size = shape.value_size,
                                     .normalised = shape.normalised,
                                     .both = shape.both,
                                     .channels = shape.decay == ScanDecay::channel,
                                     .q = q.data(),
                                     .k = k.data(),
                                     .v = v.data(),
                                     .decay = given(decay),
                                     .beta = given(beta),
                                     .first_state = given(first_state),
                                     .begin = bounds.empty() ? nullptr : bounds.data(),
                                     .dout = dout.data(),
                                     .dlast_state = given(dlast_state)},
                                    [stored](A x) { return static_cast<A>(rounded(static_cast<double>(x), stored)); })
        .run();
  }
};

// Groups of 1 to 90 positions, and a long one.
inline std::vector<std::int32_t> drawn_bounds(const ScanShape& s) {
  std::vector<std::int32_t> begin;
  for (std::int64_t b = 0; b < s.batch; ++b)
    for (std::int64_t t = 0, first = 0, next = 1 + b; t < s.n; ++t) {
      if (t == next) first = t, next = t + (t > 130 && t < 300 ? 300 : 1 + (t * 37 + b) % 90);
      begin.push_back(static_cast<std::int32_t>(first));
    }
  return begin;
}

inline std::vector<double> scan_normals(const Shape& shape, Dtype dtype, std::uint32_t stream) {
  std::vector<double> x(static_cast<std::size_t>(shape.count()));
  const std::vector<double>& drawn = drawn_normals(7, stream, x.size());
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = rounded(static_cast<float>(drawn[i]), dtype);
  return x;
}
// Keys of delta have length 1, those of a normalised scan and its queries are positive; every seventh row of all is 0.
inline std::vector<double> drawn_keys(const ScanShape& s, Dtype compute, std::uint32_t stream) {
  std::vector<double> x = scan_normals(s.keys(), compute, stream);
  for (std::size_t row = 0; row < x.size() / static_cast<std::size_t>(s.key_size); ++row) {
    double* at = x.data() + row * static_cast<std::size_t>(s.key_size);
    double squares = 0;
    for (std::int64_t i = 0; i < s.key_size; ++i) squares += at[i] * at[i];
    for (std::int64_t i = 0; i < s.key_size; ++i) {
      if (row % 7 == 3) at[i] = 0;
      if (s.normalised) at[i] = std::abs(at[i]);
      if (s.form == kernels::ScanForm::delta) at[i] = rounded(at[i] / std::sqrt(squares), compute);
    }
  }
  return x;
}
inline std::vector<double> drawn_decays(const ScanShape& s, Dtype exact) {
  std::vector<double> decay = scan_normals(s.decays(), exact, 5);
  for (std::size_t i = 0; i < decay.size(); ++i) {
    decay[i] = rounded(-s.strength * decay[i] * decay[i] - 1e-3, exact);
    if (!s.extremes) continue;
    if (i % 13 == 5) decay[i] = 0;
    if (i % 101 == 60) decay[i] = -80;
    if (i % 301 == 200) decay[i] = -std::numeric_limits<double>::infinity();
  }
  return decay;
}
inline std::vector<double> drawn_beta(const ScanShape& s, Dtype exact) {
  std::vector<double> beta = scan_normals(s.rows(), exact, 6);
  for (std::size_t i = 0; i < beta.size(); ++i) {
    beta[i] = rounded(2 / (1 + std::exp(-beta[i])), exact);
    if (s.extremes && i % 11 == 2) beta[i] = i % 2 == 0 ? 0 : 2;
  }
  return beta;
}

// Gradients of q, k and decays may differ by more than the rule allows, in proportion to the sizes of the products that
// they sum: by another order of sums in f32, and by roundings of the compute type where a normalised scan's sums
// cancel; in f64 by those of the recurrence too.
inline double scan_slack(const ScanShape& s, Dtype compute, double summand) {
  const Dtype sums = compute == Dtype::f64 ? Dtype::f64 : Dtype::f32;
  const int both = compute == Dtype::f64 ? 2 : 1;
  return (s.normalised ? 8 * both * half_step_of(compute) : 2 * half_step_of(sums)) * summand;
}

// exact: the type of all but rows.
inline ScanInput drawn_scan(const ScanShape& s, Dtype compute, Dtype exact) {
  ScanInput x{.shape = s,
              .q = drawn_keys(s, compute, 1),
              .k = drawn_keys(s, compute, 2),
              .v = scan_normals(s.values(), compute, 3),
              .dout = scan_normals(s.values(), compute, 4)};
  if (s.decay != ScanDecay::none) x.decay = drawn_decays(s, exact);
  if (s.form == kernels::ScanForm::delta) x.beta = drawn_beta(s, exact);
  if (s.groups) x.bounds = drawn_bounds(s);
  if (!s.states) return x;
  x.first_state = scan_normals(s.state(), exact, 8);
  for (double& e : x.first_state) e = s.normalised ? std::abs(e) : e;
  x.dlast_state = scan_normals(s.state(), exact, 9);
  return x;
}

// Calls see(name, right, naive, slack) for every result of the two passes: of the recurrence in double, and of a naive
// one with operands of the type `compute`. All are sums of products of such numbers, whatever type they are stored in.
template <class F>
void each_scan_result(const ScanInput& in, Dtype compute, F&& see) {
  const kernels::NaiveScanResult<double> right = in.naive<double>(Dtype::f64);
  const kernels::NaiveScanResult<float> plain = in.naive<float>(compute);
  const double slack = scan_slack(in.shape, compute, right.summand);
  see("o", right.o, plain.o, 0.0);
  see("denominator", right.denominator, plain.denominator, 0.0);
  see("last state", right.last_state, plain.last_state, 0.0);
  see("dq", right.dq, plain.dq, slack);
  see("dk", right.dk, plain.dk, slack);
  see("dv", right.dv, plain.dv, 0.0);
  see("ddecay", right.ddecay, plain.ddecay, slack);
  see("dbeta", right.dbeta, plain.dbeta, 0.0);
  see("dfirst state", right.dfirst_state, plain.dfirst_state, 0.0);
}

}  // namespace longstride::testing
