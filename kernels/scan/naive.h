// The scan by its definition, position by position in the arithmetic of A: what every kernel is compared with.
// Equations and layouts are those of scan.h; arrays are contiguous.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <vector>

#include "kernels/scan/scan.h"

namespace longstride::kernels {

struct NaiveScan {
  ScanForm form = ScanForm::sum;
  std::int64_t batch = 1, n = 1, heads = 1, key_size = 1, value_size = 1;
  bool normalised = false, both = false, channels = false;  // channels: a decay per channel
  const double *q = nullptr, *k = nullptr, *v = nullptr, *decay = nullptr, *beta = nullptr, *first_state = nullptr;
  const std::int32_t* begin = nullptr;
  const double *dout = nullptr, *dlast_state = nullptr;

  std::int64_t columns() const { return value_size + (normalised ? 1 : 0); }
};

// `summand` is the largest product that a gradient of q, k or a decay is summed from: where it is normalised they may
// cancel, as they do in a group of one position, and rounding makes errors of their size.
template <class A>
struct NaiveScanResult {
  A summand = 0;
  std::vector<A> o, denominator, last_state, dq, dk, dv, ddecay, dbeta, dfirst_state;
};

// rounding: in the delta rule, what is read from states or written to them is an operand of a product, which may be
// rounded.
template <class A>
class NaiveScanner {
 public:
  using Rounding = std::function<A(A)>;

  explicit NaiveScanner(
      const NaiveScan& problem, Rounding rounding = [](A x) { return x; })
      : p_(problem), rounding_(std::move(rounding)) {
    const std::size_t rows = at(p_.batch * p_.n * p_.heads),
                      states = at(p_.batch * p_.heads * p_.key_size * p_.columns());
    for (auto* x : {&out_.dq, &out_.dk}) x->resize(rows * at(p_.key_size));
    for (auto* x : {&out_.o, &out_.dv}) x->resize(rows * at(p_.value_size));
    for (auto* x : {&out_.denominator, &out_.dbeta}) x->resize(rows);
    for (auto* x : {&out_.last_state, &out_.dfirst_state}) x->resize(states);
    out_.ddecay.resize(rows * at(p_.channels ? p_.key_size : 1));
  }

  // Gradients if dout is given.
  NaiveScanResult<A> run() {
    for (unit_ = 0; unit_ < p_.batch * p_.heads; ++unit_) p_.both ? run_both() : run_past();
    return std::move(out_);
  }

 private:
  using State = std::vector<A>;                // (key size, columns)
  static constexpr std::int64_t block = 1024;  // positions whose states are in memory at a time

  static constexpr std::size_t at(std::int64_t x) { return static_cast<std::size_t>(x); }
  std::int64_t row(std::int64_t t) const { return (unit_ / p_.heads * p_.n + t) * p_.heads + unit_ % p_.heads; }
  std::int64_t of_states() const { return p_.key_size * p_.columns(); }
  A q(std::int64_t t, std::int64_t i) const { return static_cast<A>(p_.q[row(t) * p_.key_size + i]); }
  A k(std::int64_t t, std::int64_t i) const { return static_cast<A>(p_.k[row(t) * p_.key_size + i]); }
  A v(std::int64_t t, std::int64_t j) const {
    return j < p_.value_size ? static_cast<A>(p_.v[row(t) * p_.value_size + j]) : A(1);
  }
  A beta(std::int64_t t) const { return p_.form == ScanForm::delta ? static_cast<A>(p_.beta[row(t)]) : A(1); }
  bool begins(std::int64_t t) const {
    return t > 0 && p_.begin != nullptr && p_.begin[unit_ / p_.heads * p_.n + t] == t;
  }
  A decay(std::int64_t t, std::int64_t i) const {
    if (begins(t)) return 0;
    if (p_.decay == nullptr) return 1;
    return std::exp(static_cast<A>(p_.decay[p_.channels ? row(t) * p_.key_size + i : row(t)]));
  }

  State decayed(std::int64_t t, State s) const {
    for (std::int64_t i = 0; i < p_.key_size; ++i) {
      const A a = decay(t, i);
      for (std::int64_t j = 0; j < p_.columns(); ++j) s[at(i * p_.columns() + j)] *= a;
    }
    return s;
  }
  // v - R^T k for delta, else v.
  A error(std::int64_t t, std::int64_t j, const State& r) const {
    A sum = 0;
    for (std::int64_t i = 0; p_.form == ScanForm::delta && i < p_.key_size; ++i)
      sum += operand(r[at(i * p_.columns() + j)]) * k(t, i);
    return v(t, j) - sum;
  }
  A operand(A x) const { return p_.form == ScanForm::delta ? rounding_(x) : x; }
  State after(std::int64_t t, const State& before) const {
    const State r = decayed(t, before);
    State s = r;
    for (std::int64_t j = 0; j < p_.columns(); ++j) {
      const A u = operand(beta(t) * error(t, j, r));
      for (std::int64_t i = 0; i < p_.key_size; ++i) s[at(i * p_.columns() + j)] += k(t, i) * u;
    }
    return s;
  }

  void write_output(std::int64_t t, const State& s) {
    std::vector<A> sum(at(p_.columns()));
    for (std::int64_t i = 0; i < p_.key_size; ++i)
      for (std::int64_t j = 0; j < p_.columns(); ++j) sum[at(j)] += q(t, i) * operand(s[at(i * p_.columns() + j)]);
    const A below = p_.normalised ? sum.back() : A(1);
    if (p_.normalised) out_.denominator[at(unit_ * p_.n + t)] = below;
    for (std::int64_t j = 0; j < p_.value_size; ++j)
      out_.o[at(row(t) * p_.value_size + j)] = below != 0 ? sum[at(j)] / below : A(0);
  }
  // The gradient of the sums before the division.
  std::vector<A> dout(std::int64_t t) const {
    std::vector<A> d(at(p_.columns()));
    const A below = p_.normalised ? out_.denominator[at(unit_ * p_.n + t)] : A(1);
    for (std::int64_t j = 0; j < p_.value_size && below != 0; ++j) {
      d[at(j)] = static_cast<A>(p_.dout[row(t) * p_.value_size + j]) / below;
      if (p_.normalised) d.back() -= d[at(j)] * out_.o[at(row(t) * p_.value_size + j)];
    }
    return d;
  }
  void add_outer(State& g, std::int64_t t, const std::vector<A>& d) const {
    for (std::int64_t i = 0; i < p_.key_size; ++i)
      for (std::int64_t j = 0; j < p_.columns(); ++j) g[at(i * p_.columns() + j)] += q(t, i) * d[at(j)];
  }

  State given(const double* states) const {
    State s(at(of_states()));
    for (std::int64_t e = 0; states != nullptr && e < of_states(); ++e)
      s[at(e)] = static_cast<A>(states[unit_ * of_states() + e]);
    return s;
  }

  void run_past() {
    State s = given(p_.first_state);
    std::vector<State> starts;
    for (std::int64_t t = 0; t < p_.n; ++t) {
      if (t % block == 0) starts.push_back(s);
      s = after(t, s);
      write_output(t, s);
    }
    std::copy(s.begin(), s.end(), out_.last_state.begin() + unit_ * of_states());
    if (p_.dout == nullptr) return;
    State g = given(p_.dlast_state);
    for (std::int64_t b = std::ssize(starts); b-- > 0;) {
      std::vector<State> states{starts[at(b)]};
      const std::int64_t begin = b * block, end = std::min(p_.n, begin + block);
      for (std::int64_t t = begin; t < end; ++t) states.push_back(after(t, states.back()));
      for (std::int64_t t = end; t-- > begin;) step_back(t, states[at(t - begin)], states[at(t - begin + 1)], g);
    }
    std::copy(g.begin(), g.end(), out_.dfirst_state.begin() + unit_ * of_states());
  }

  // g is the gradient of the state after position t, but for its own output, and becomes that of the state before.
  void step_back(std::int64_t t, const State& before, const State& after, State& g) {
    const std::vector<A> d = dout(t);
    const State r = decayed(t, before);
    add_outer(g, t, d);
    write_gradients(t, after, g, d, r);
    for (std::int64_t i = 0; i < p_.key_size; ++i) {
      const A a = decay(t, i);
      for (std::int64_t j = 0; j < p_.columns(); ++j) {
        const std::size_t e = at(i * p_.columns() + j);
        out_.ddecay[at(p_.channels ? row(t) * p_.key_size + i : row(t))] += operand(g[e]) * operand(r[e]);
        out_.summand = std::max(out_.summand, std::abs(g[e] * r[e]));
        g[e] *= a;
      }
    }
  }

  // All but the decay's; takes from g what delta erases.
  void write_gradients(std::int64_t t, const State& s, State& g, const std::vector<A>& d, const State& r) {
    A *dq = &out_.dq[at(row(t) * p_.key_size)], *dk = &out_.dk[at(row(t) * p_.key_size)];
    for (std::int64_t j = 0; j < p_.columns(); ++j) {
      const A wrong = error(t, j, r), u = operand(beta(t) * wrong);
      A du = 0;
      for (std::int64_t i = 0; i < p_.key_size; ++i) du += operand(g[at(i * p_.columns() + j)]) * k(t, i);
      const A erased = operand(beta(t) * du);
      if (j < p_.value_size) out_.dv[at(row(t) * p_.value_size + j)] = beta(t) * du;
      out_.dbeta[at(row(t))] += du * wrong;
      for (std::int64_t i = 0; i < p_.key_size; ++i) {
        const std::size_t e = at(i * p_.columns() + j);
        dq[i] += operand(s[e]) * d[at(j)];
        dk[i] += operand(g[e]) * u;
        out_.summand = std::max({out_.summand, std::abs(s[e] * d[at(j)]), std::abs(g[e] * wrong)});
        if (p_.form != ScanForm::delta) continue;
        dk[i] -= operand(r[e]) * erased;
        g[e] -= k(t, i) * erased;
      }
    }
  }

  void run_both() {
    for (std::int64_t first = 0, end = 0; first < p_.n; first = end) {
      for (end = first + 1; end < p_.n && !begins(end);) ++end;
      State s(at(of_states())), g(at(of_states())), none(at(of_states()));
      for (std::int64_t t = first; t < end; ++t)
        for (std::int64_t i = 0; i < p_.key_size; ++i)
          for (std::int64_t j = 0; j < p_.columns(); ++j) s[at(i * p_.columns() + j)] += k(t, i) * v(t, j);
      for (std::int64_t t = first; t < end; ++t) write_output(t, s);
      for (std::int64_t t = first; p_.dout != nullptr && t < end; ++t) add_outer(g, t, dout(t));
      for (std::int64_t t = first; p_.dout != nullptr && t < end; ++t) write_gradients(t, s, g, dout(t), none);
    }
  }

  NaiveScan p_;
  Rounding rounding_;
  NaiveScanResult<A> out_;
  std::int64_t unit_ = 0;
};

}  // namespace longstride::kernels
