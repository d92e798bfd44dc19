// Arguments of the scan in device memory, and the comparison of its results.
#pragma once
#include <map>
#include <optional>

#include "tests/ops/op_test.h"
#include "tests/ops/scan/scan_input.h"

namespace longstride::testing {

// Arguments and results; the optional ones are absent.
struct ScanOperands {
  ScanInput input;
  ScanShape shape;
  Operand q, k, v, dout;
  std::optional<Operand> decay = {}, beta = {}, first_state = {}, dlast_state = {};
  std::optional<Operand> begin = {};
  Operand o, dq, dk, dv;
  std::optional<Operand> denominator = {}, last_state = {}, chunk_states = {}, ddecay = {}, dbeta = {},
                         dfirst_state = {};

  static Tensor given(const std::optional<Operand>& x) { return x ? static_cast<Tensor>(*x) : Tensor(); }
  kernels::Direction direction() const { return shape.both ? kernels::Direction::both : kernels::Direction::past; }
  // The arguments that both passes have.
  template <class Args>
  Args common() {
    Args args{};
    args.form = shape.form;
    args.run = shape.run;
    args.q = q;
    args.k = k;
    args.v = v;
    args.o = o;
    args.decay = given(decay);
    args.beta = given(beta);
    args.begin = given(begin);
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
};

class ScanTest : public OpTest {
 protected:
  ScanOperands operands(const ScanShape& s) {
    const ScanInput in = drawn_scan(s, compute(), exact());
    ScanOperands x{.input = in,
                   .shape = s,
                   .q = with_values(s.keys(), compute(), in.q),
                   .k = with_values(s.keys(), compute(), in.k),
                   .v = with_values(s.values(), compute(), in.v),
                   .dout = with_values(s.values(), compute(), in.dout),
                   .o = result(s.values()),
                   .dq = result(s.keys()),
                   .dk = result(s.keys()),
                   .dv = result(s.values())};
    if (s.decay != ScanDecay::none) {
      x.decay = with_values(s.decays(), exact(), in.decay);
      if (!s.known) x.ddecay = result(s.decays(), exact());
    }
    if (s.form == kernels::ScanForm::delta) {
      x.beta = with_values(s.rows(), exact(), in.beta);
      x.dbeta = result(s.rows(), exact());
    }
    if (s.normalised) x.denominator = result({s.batch, s.heads, s.n}, exact());
    if (s.groups) x.begin = bounds_of(s, in.bounds);
    if (s.both) return x;
    x.chunk_states = result(
        {s.batch * s.heads, kernels::scan_states(device(), kernels::problem_of(x.forward())), s.key_size, s.columns()},
        exact());
    if (!s.states) return x;
    x.first_state = with_values(s.state(), exact(), in.first_state);
    x.dlast_state = with_values(s.state(), exact(), in.dlast_state);
    x.last_state = result(s.state(), exact());
    x.dfirst_state = result(s.state(), exact());
    return x;
  }
  Operand bounds_of(const ScanShape& s, const std::vector<std::int32_t>& bounds) {
    return with_values({s.batch, 1, s.n}, Dtype::i32, {bounds.begin(), bounds.end()});
  }

  static const Operand* given(const std::optional<Operand>& x) { return x ? &*x : nullptr; }

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
    const std::map<std::string, const Operand*> found = {{"o", &x.o},
                                                         {"denominator", given(x.denominator)},
                                                         {"last state", given(x.last_state)},
                                                         {"dq", &x.dq},
                                                         {"dk", &x.dk},
                                                         {"dv", &x.dv},
                                                         {"ddecay", given(x.ddecay)},
                                                         {"dbeta", given(x.dbeta)},
                                                         {"dfirst state", given(x.dfirst_state)}};
    each_scan_result(x.input, compute(), [&](const char* name, const auto& right, const auto& naive, double slack) {
      if (const Operand* operand = found.at(name); operand != nullptr)
        expect_as_exact(name, compute(), operand->found(), right, naive, slack);
    });
  }
};

}  // namespace longstride::testing
