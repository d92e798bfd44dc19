// Drawn arguments of the scan, and its results by the recurrence.
#pragma once
#include <optional>

#include "kernels/scan/naive.h"
#include "tests/ops/op_test.h"

namespace longstride::testing {

enum class ScanDecay : std::uint8_t { none, head, channel };

struct ScanShape {
  kernels::ScanForm form = kernels::ScanForm::sum;
  ScanDecay decay = ScanDecay::none;
  bool normalised = false, both = false, groups = false, states = false;
  std::int64_t batch = 1, n = 1, heads = 1, key_size = 16, value_size = 16;
  double strength = 0.3;  // decays have logarithms of -strength times squares of normal numbers
  bool extremes = true;   // decays of 1, of all but 0 and of 0, b of 0 and 2

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

// Arguments and results; the optional ones are absent.
struct ScanOperands {
  ScanShape shape;
  Operand q, k, v, dout;
  std::optional<Operand> decay = {}, beta = {}, first_state = {}, dlast_state = {};
  std::vector<std::int32_t> bounds = {};
  Operand o, dq, dk, dv;
  std::optional<Operand> denominator = {}, last_state = {}, chunk_states = {}, ddecay = {}, dbeta = {},
                         dfirst_state = {};

  static Tensor given(const std::optional<Operand>& x) { return x ? static_cast<Tensor>(*x) : Tensor(); }
  Tensor begin() { return bounds.empty() ? Tensor() : Tensor(bounds.data(), Dtype::i32, {shape.batch, 1, shape.n}); }
  kernels::Direction direction() const { return shape.both ? kernels::Direction::both : kernels::Direction::past; }
  // The arguments that both passes have.
  template <class Args>
  Args common() {
    Args args{};
    args.form = shape.form;
    args.q = q;
    args.k = k;
    args.v = v;
    args.o = o;
    args.decay = given(decay);
    args.beta = given(beta);
    args.begin = begin();
    args.denominator = given(denominator);
    args.chunk_states = given(chunk_states);
    args.direction = direction();
    return args;
  }
  kernels::ScanArgs forward() {
    auto args = common<kernels::ScanArgs>();
    args.first_state = given(first_state);
    args.last_state = given(last_state);
    return args;
  }
  kernels::ScanBackwardArgs backward() {
    auto args = common<kernels::ScanBackwardArgs>();
    args.dout = dout;
    args.dlast_state = given(dlast_state);
    args.dq = dq;
    args.dk = dk;
    args.dv = dv;
    args.ddecay = given(ddecay);
    args.dbeta = given(dbeta);
    args.dfirst_state = given(dfirst_state);
    return args;
  }
  template <class A>
  kernels::NaiveScanResult<A> naive() const {
    const auto values = [](const std::optional<Operand>& x) { return x ? x->values().data() : nullptr; };
    return kernels::NaiveScanner<A>({.form = shape.form,
                                     .batch = shape.batch,
                                     .n = shape.n,
                                     .heads = shape.heads,
                                     .key_size = shape.key_size,
                                     .value_size = shape.value_size,
                                     .normalised = shape.normalised,
                                     .both = shape.both,
                                     .channels = shape.decay == ScanDecay::channel,
                                     .q = q.values().data(),
                                     .k = k.values().data(),
                                     .v = v.values().data(),
                                     .decay = values(decay),
                                     .beta = values(beta),
                                     .first_state = values(first_state),
                                     .begin = bounds.empty() ? nullptr : bounds.data(),
                                     .dout = dout.values().data(),
                                     .dlast_state = values(dlast_state)})
        .run();
  }
};

class ScanTest : public OpTest {
 protected:
  // Keys of delta have length 1, those of a normalised scan and its queries are positive; every seventh row of all is
  // 0.
  Operand drawn_keys(const ScanShape& s, std::uint32_t stream) {
    std::vector<double> x = normals(s.keys(), stream).values();
    for (std::size_t row = 0; row < x.size() / static_cast<std::size_t>(s.key_size); ++row) {
      double* at = x.data() + row * static_cast<std::size_t>(s.key_size);
      double squares = 0;
      for (std::int64_t i = 0; i < s.key_size; ++i) squares += at[i] * at[i];
      for (std::int64_t i = 0; i < s.key_size; ++i) {
        if (row % 7 == 3) at[i] = 0;
        if (s.normalised) at[i] = std::abs(at[i]);
        if (s.form == kernels::ScanForm::delta) at[i] = rounded(at[i] / std::sqrt(squares), compute());
      }
    }
    return with_values(s.keys(), compute(), std::move(x));
  }

  ScanOperands operands(const ScanShape& s) {
    ScanOperands x{.shape = s,
                   .q = drawn_keys(s, 1),
                   .k = drawn_keys(s, 2),
                   .v = normals(s.values(), 3),
                   .dout = normals(s.values(), 4),
                   .o = result(s.values()),
                   .dq = result(s.keys()),
                   .dk = result(s.keys()),
                   .dv = result(s.values())};
    if (s.decay != ScanDecay::none) {
      std::vector<double> decay = normals(s.decays(), 5).values();
      for (std::size_t i = 0; i < decay.size(); ++i) {
        decay[i] = rounded(-s.strength * decay[i] * decay[i] - 1e-3, compute());
        if (!s.extremes) continue;
        if (i % 13 == 5) decay[i] = 0;
        if (i % 101 == 60) decay[i] = -80;
        if (i % 301 == 200) decay[i] = -std::numeric_limits<double>::infinity();
      }
      x.decay = with_values(s.decays(), compute(), std::move(decay));
      x.ddecay = result(s.decays());
    }
    if (s.form == kernels::ScanForm::delta) {
      std::vector<double> beta = normals(s.rows(), 6).values();
      for (std::size_t i = 0; i < beta.size(); ++i) {
        beta[i] = rounded(2 / (1 + std::exp(-beta[i])), compute());
        if (s.extremes && i % 11 == 2) beta[i] = i % 2 == 0 ? 0 : 2;
      }
      x.beta = with_values(s.rows(), compute(), std::move(beta));
      x.dbeta = result(s.rows());
    }
    if (s.normalised) x.denominator = result({s.batch, s.heads, s.n});
    if (s.groups) x.bounds = drawn_bounds(s);
    if (s.both) return x;
    x.chunk_states = result({s.batch * s.heads, kernels::scan_chunks(s.n), s.key_size, s.columns()});
    if (!s.states) return x;
    x.first_state = normals(s.state(), 8);
    if (s.normalised) x.first_state = with_values(s.state(), compute(), magnitudes(*x.first_state));
    x.dlast_state = normals(s.state(), 9);
    x.last_state = result(s.state());
    x.dfirst_state = result(s.state());
    return x;
  }

  // Runs both passes, three times each, and compares all results with the recurrence.
  void expect_the_recurrence(const ScanShape& s) {
    SCOPED_TRACE(s.text());
    ScanOperands x = operands(s);
    std::vector<Operand*> forward{&x.o}, backward{&x.dq, &x.dk, &x.dv};
    for (auto* optional : {&x.denominator, &x.last_state, &x.chunk_states})
      if (*optional) forward.push_back(&**optional);
    for (auto* optional : {&x.ddecay, &x.dbeta, &x.dfirst_state})
      if (*optional) backward.push_back(&**optional);
    run(x.forward(), forward);
    run(x.backward(), backward);
    const kernels::NaiveScanResult<double> right = x.naive<double>();
    const kernels::NaiveScanResult<float> plain = x.naive<float>();
    const auto expect = [&](const char* name, const std::optional<Operand>& found, const std::vector<double>& of_double,
                            const std::vector<float>& of_float, double slack = 0) {
      if (!found) return;
      expect_as_exact_as_plain(
          name, *found,
          [&](auto zero) {
            if constexpr (std::is_same_v<decltype(zero), double>)
              return of_double;
            else
              return of_float;
          },
          slack);
    };
    const double slack = s.normalised ? 8 * half_step_of(compute()) * right.summand : 0;
    expect("o", x.o, right.o, plain.o);
    expect("denominator", x.denominator, right.denominator, plain.denominator);
    expect("last state", x.last_state, right.last_state, plain.last_state);
    expect("dq", x.dq, right.dq, plain.dq, slack);
    expect("dk", x.dk, right.dk, plain.dk, slack);
    expect("dv", x.dv, right.dv, plain.dv);
    expect("ddecay", x.ddecay, right.ddecay, plain.ddecay);
    expect("dbeta", x.dbeta, right.dbeta, plain.dbeta);
    expect("dfirst state", x.dfirst_state, right.dfirst_state, plain.dfirst_state);
  }

  static std::vector<double> magnitudes(const Operand& x) {
    std::vector<double> values = x.values();
    for (double& v : values) v = std::abs(v);
    return values;
  }
  // Groups of 1 to 90 positions, and a long one.
  static std::vector<std::int32_t> drawn_bounds(const ScanShape& s) {
    std::vector<std::int32_t> begin;
    for (std::int64_t b = 0; b < s.batch; ++b)
      for (std::int64_t t = 0, first = 0, next = 1 + b; t < s.n; ++t) {
        if (t == next) first = t, next = t + (t > 130 && t < 300 ? 300 : 1 + (t * 37 + b) % 90);
        begin.push_back(static_cast<std::int32_t>(first));
      }
    return begin;
  }
};

}  // namespace longstride::testing
