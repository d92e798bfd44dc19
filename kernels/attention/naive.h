// Attention by its definition, pair by pair in the arithmetic of A: what every kernel is compared with.
//
//   score_ij = scale [(q_i + u) . k_j + (q_i + w) . T[min(distance_ij, distances - 1)]]
//   P_ij = weight_ij exp(score_ij) / sum_j weight_ij exp(score_ij),   lse_i = log sum_j weight_ij exp(score_ij)
//   o_i = sum_j kept_ij P_ij v_j
//
// A sink adds exp(sink) to the sums of exponentials of its head. The caller lists the pairs; the second product is
// there with a table T, of distances or of labels, and the biases u and w where they are given. A naive kernel of a
// 16-bit type rounds the operands of its products to it: q + u, q + w, P, dS, and o in delta.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <vector>

namespace longstride::kernels {

// Arrays are contiguous: (batch, rows, heads, size), T (distances, tables, key_size), biases (heads, key_size). k and v
// have key_heads, if not 0: query head h reads key head floor(h / (heads / key_heads)).
struct NaiveProblem {
  std::int64_t batch = 1, n_q = 1, n_k = 1, heads = 1, key_size = 1, value_size = 1;
  double scale = 1;
  const double *q = nullptr, *k = nullptr, *v = nullptr, *dout = nullptr;
  std::int64_t distances = 0, tables = 1;  // no distances: no T; tables: 1 or heads
  const double *table = nullptr, *content_bias = nullptr, *position_bias = nullptr;
  bool with_parameters = false;  // gradients of T, biases and spans are wanted
  bool with_terms = false;       // the terms of NaiveResult are wanted
  const double* sink = nullptr;  // (heads); none: no sink
  std::int64_t key_heads = 0;    // 0: heads
};

template <class A>
struct NaivePair {
  std::int64_t key = 0, distance = 0;  // or its label
  A weight = 1;
  A slope = 0;  // derivative of the weight with respect to the head's span
  A kept = 1;
  // Set by NaiveAttention. `gradient` is that of the products of q and k, `along` that of the score by the weight. The
  // terms are sums of magnitudes.
  A score = 0, probability = 0, along = 0, gradient = 0, score_terms = 0, gradient_terms = 0;
};

// Results in the arrays' shapes; lse is (batch, heads, n_q). The terms have the size of what rounding makes the errors
// from: the gradients of scores are differences that may cancel, so dq_terms and dk_terms are dq and dk with magnitudes
// of all summands. The weights of dv are exponentials of differences: dv_terms is dv with magnitudes, each times those
// of the score's terms and of lse; so are o_terms, and dsink_terms by the terms of o. lse_terms is the mean of those
// sizes, plus 1 for the sum of exponentials. dtable_terms are like dk_terms.
template <class A>
struct NaiveResult {
  std::vector<A> o, lse, dq, dk, dv, dtable = {}, dcontent_bias = {}, dposition_bias = {}, dspan = {}, dsink = {};
  std::vector<A> lse_terms = {}, o_terms = {}, dsink_terms = {}, dq_terms = {}, dk_terms = {}, dv_terms = {};
  std::vector<A> dtable_terms = {};
};

template <class A>
class NaiveAttention {
 public:
  using Pairs = std::vector<NaivePair<A>>;
  using Round = std::function<double(double)>;
  NaiveResult<A> out;

  // round: to the type of operands; none: they are not rounded.
  explicit NaiveAttention(const NaiveProblem& problem, Round round = nullptr) : p_(problem), round_(std::move(round)) {
    const auto zeros = [&](std::int64_t count) { return std::vector<A>(static_cast<std::size_t>(count)); };
    if (p_.key_heads == 0) p_.key_heads = p_.heads;
    const std::int64_t rows = p_.batch * p_.heads * p_.n_q, keys = p_.batch * p_.key_heads * p_.n_k;
    const std::int64_t table = p_.distances * p_.tables * p_.key_size, bias = p_.heads * p_.key_size;
    for (std::vector<A>* x : {&out.dq, &out.dq_terms}) *x = zeros(rows * p_.key_size);
    for (std::vector<A>* x : {&out.dk, &out.dk_terms}) *x = zeros(keys * p_.key_size);
    for (std::vector<A>* x : {&out.dv, &out.dv_terms}) *x = zeros(keys * p_.value_size);
    for (std::vector<A>* x : {&out.lse, &out.lse_terms}) *x = zeros(rows);
    for (std::vector<A>* x : {&out.dcontent_bias, &out.dposition_bias}) *x = zeros(bias);
    for (std::vector<A>* x : {&out.o, &out.o_terms}) *x = zeros(rows * p_.value_size);
    for (std::vector<A>* x : {&out.dtable, &out.dtable_terms}) *x = zeros(table);
    out.dspan = zeros(p_.heads);
    for (std::vector<A>* x : {&out.dsink, &out.dsink_terms}) *x = zeros(p_.heads);
    content_ = biased(p_.content_bias);
    if (p_.distances > 0) position_ = biased(p_.position_bias);
  }

  // All results; pairs_of(sequence, head, i) lists what query row i sees.
  template <class F>
  const NaiveResult<A>& run(F&& pairs_of) {
    const std::int64_t units = p_.batch * p_.heads, block = 64, blocks = (p_.n_k + block - 1) / block;
    std::vector<Pairs> rows(static_cast<std::size_t>(units * p_.n_q));
    const auto row = [&](std::int64_t unit, std::int64_t i) -> Pairs& { return rows[at(unit * p_.n_q + i)]; };
#pragma omp parallel for collapse(2) schedule(dynamic, 8)
    for (std::int64_t u = 0; u < units; ++u)
      for (std::int64_t i = 0; i < p_.n_q; ++i) {
        row(u, i) = pairs_of(u / p_.heads, u % p_.heads, i);
        forward(u / p_.heads, u % p_.heads, i, row(u, i));
        backward(u / p_.heads, u % p_.heads, i, row(u, i));
      }
#pragma omp parallel for collapse(2) schedule(dynamic)
    for (std::int64_t u = 0; u < p_.batch * p_.key_heads; ++u)
      for (std::int64_t b = 0; b < blocks; ++b)
        for (std::int64_t unit = u * group(); unit < (u + 1) * group(); ++unit)
          for (std::int64_t i = 0; i < p_.n_q; ++i)
            for (const NaivePair<A>& pair : row(unit, i))
              if (pair.key / block == b) add_to_key(unit / p_.heads, unit % p_.heads, i, pair);
    for (std::int64_t u = 0; p_.sink != nullptr && u < units; ++u)
      for (std::int64_t i = 0; i < p_.n_q; ++i) add_to_sink(u / p_.heads, u % p_.heads, i);
    for (std::int64_t u = 0; p_.with_parameters && u < units; ++u)
      for (std::int64_t i = 0; i < p_.n_q; ++i)
        for (const NaivePair<A>& pair : row(u, i)) add_to_parameters(u / p_.heads, u % p_.heads, i, pair);
    return out;
  }

  void score(std::int64_t s, std::int64_t h, std::int64_t i, Pairs& pairs) const {
    const std::size_t q = query(s, h, i) * at(p_.key_size);
    const A scale = static_cast<A>(p_.scale);
    for (NaivePair<A>& x : pairs) {
      const double *k = p_.k + key(s, h, x.key) * at(p_.key_size), *t = table(h, x);
      const A position = t != nullptr ? dot(&position_[q], t, p_.key_size) : A(0);
      x.score = scale * (dot(&content_[q], k, p_.key_size) + position);
      if (!p_.with_terms) continue;
      const A position_terms = t != nullptr ? dot_of_magnitudes(&position_[q], t, p_.key_size) : A(0);
      x.score_terms = scale * (dot_of_magnitudes(&content_[q], k, p_.key_size) + position_terms);
    }
  }

  // lse and o of a row.
  void forward(std::int64_t s, std::int64_t h, std::int64_t i, Pairs& pairs) {
    score(s, h, i, pairs);
    A top = p_.sink != nullptr ? static_cast<A>(p_.sink[h]) : -std::numeric_limits<A>::infinity(), terms = 1;
    const A sink = top;
    for (const NaivePair<A>& x : pairs) top = std::max(top, x.score);
    A sum = std::exp(sink - top);  // 0 without a sink
    for (const NaivePair<A>& x : pairs) sum += x.weight * std::exp(x.score - top);
    const A lse = pairs.empty() ? top : top + std::log(sum);
    out.lse[row_of(s, h, i)] = lse;
    A* o = &out.o[query(s, h, i) * at(p_.value_size)];
    for (const NaivePair<A>& x : pairs) {
      const A p = x.weight * std::exp(x.score - lse);
      terms += p * (x.score_terms + std::abs(lse));
      const double* v = p_.v + key(s, h, x.key) * at(p_.value_size);
      add(o, rounded(p * x.kept), v, p_.value_size);
      if (!p_.with_terms) continue;
      const A size = p * x.kept * (1 + x.score_terms + std::abs(lse));
      add_magnitudes(&out.o_terms[query(s, h, i) * at(p_.value_size)], size, v, p_.value_size);
    }
    out.lse_terms[row_of(s, h, i)] = terms;
  }

  // dq of a row, and what the pairs add to other gradients, from its scores, lse and o.
  void backward(std::int64_t s, std::int64_t h, std::int64_t i, Pairs& pairs) {
    const double* dout = p_.dout + query(s, h, i) * at(p_.value_size);
    const A* o = &out.o[query(s, h, i) * at(p_.value_size)];
    const A lse = out.lse[row_of(s, h, i)], delta = delta_of(dout, o);
    const std::size_t q = query(s, h, i) * at(p_.key_size);
    for (NaivePair<A>& x : pairs) {
      const double* v = p_.v + key(s, h, x.key) * at(p_.value_size);
      const A unweighted = std::exp(x.score - lse);
      x.probability = rounded(x.weight * unweighted * x.kept);
      x.along = unweighted * (dot(dout, v, p_.value_size) * x.kept - delta);
      x.gradient = static_cast<A>(p_.scale) * rounded(x.weight * x.along);
      const double *k = p_.k + key(s, h, x.key) * at(p_.key_size), *t = table(h, x);
      add(&out.dq[q], x.gradient, k, p_.key_size);
      if (t != nullptr) add(&out.dq[q], x.gradient, t, p_.key_size);
      if (!p_.with_terms) continue;
      x.score_terms += std::abs(lse);
      x.gradient_terms =
          static_cast<A>(p_.scale) * x.weight * unweighted *
          (dot_of_magnitudes(dout, v, p_.value_size) * x.kept + dot_of_magnitudes(dout, o, p_.value_size));
      add_magnitudes(&out.dq_terms[q], x.gradient_terms, k, p_.key_size);
      if (t != nullptr) add_magnitudes(&out.dq_terms[q], x.gradient_terms, t, p_.key_size);
    }
  }

  // After backward.
  void add_to_key(std::int64_t s, std::int64_t h, std::int64_t i, const NaivePair<A>& x) {
    const A* q = &content_[query(s, h, i) * at(p_.key_size)];
    const double* dout = p_.dout + query(s, h, i) * at(p_.value_size);
    const std::size_t k = key(s, h, x.key) * at(p_.key_size), v = key(s, h, x.key) * at(p_.value_size);
    add(&out.dk[k], x.gradient, q, p_.key_size);
    add(&out.dv[v], x.probability, dout, p_.value_size);
    if (!p_.with_terms) return;
    add_magnitudes(&out.dk_terms[k], x.gradient_terms, q, p_.key_size);
    add_magnitudes(&out.dv_terms[v], x.probability * x.score_terms, dout, p_.value_size);
  }

 private:
  static constexpr std::size_t at(std::int64_t x) { return static_cast<std::size_t>(x); }
  std::size_t query(std::int64_t s, std::int64_t h, std::int64_t i) const {
    return at((s * p_.n_q + i) * p_.heads + h);
  }
  std::int64_t group() const { return p_.heads / p_.key_heads; }  // query heads per key head
  std::size_t key(std::int64_t s, std::int64_t h, std::int64_t j) const {
    return at((s * p_.n_k + j) * p_.key_heads + h / group());
  }
  std::size_t row_of(std::int64_t s, std::int64_t h, std::int64_t i) const {
    return at((s * p_.heads + h) * p_.n_q + i);
  }
  std::size_t table_at(std::int64_t h, const NaivePair<A>& x) const {
    return at((std::min(x.distance, p_.distances - 1) * p_.tables + h % p_.tables) * p_.key_size);
  }
  const double* table(std::int64_t h, const NaivePair<A>& x) const {
    return p_.distances > 0 ? p_.table + table_at(h, x) : nullptr;
  }
  A rounded(A x) const { return round_ ? static_cast<A>(round_(static_cast<double>(x))) : x; }

  template <class X, class Y>
  static A dot(const X* x, const Y* y, std::int64_t size) {
    A sum = 0;
    for (std::int64_t d = 0; d < size; ++d) sum += static_cast<A>(x[d]) * static_cast<A>(y[d]);
    return sum;
  }
  template <class X, class Y>
  static A dot_of_magnitudes(const X* x, const Y* y, std::int64_t size) {
    A sum = 0;
    for (std::int64_t d = 0; d < size; ++d) sum += std::abs(static_cast<A>(x[d]) * static_cast<A>(y[d]));
    return sum;
  }
  template <class X>
  static void add(A* to, A factor, const X* x, std::int64_t size) {
    for (std::int64_t d = 0; d < size; ++d) to[d] += factor * static_cast<A>(x[d]);
  }
  template <class X>
  static void add_magnitudes(A* to, A factor, const X* x, std::int64_t size) {
    for (std::int64_t d = 0; d < size; ++d) to[d] += factor * static_cast<A>(std::abs(x[d]));
  }
  // dout . o, in another order than that of dout . v, from which it is subtracted: in the same order, which no
  // implementation has, the two would cancel exactly where only one key is seen.
  A delta_of(const double* dout, const A* o) const {
    A sum = 0;
    for (std::size_t d = at(p_.value_size); d-- > 0;) sum += static_cast<A>(dout[d]) * rounded(o[d]);
    return sum;
  }

  std::vector<A> biased(const double* bias) const {
    std::vector<A> sum;
    const std::int64_t width = p_.heads * p_.key_size;
    for (std::int64_t e = 0; e < p_.batch * p_.n_q * width; ++e) {
      const A x = static_cast<A>(p_.q[e]);
      sum.push_back(bias != nullptr ? rounded(x + static_cast<A>(bias[e % width])) : x);
    }
    return sum;
  }

  void add_to_sink(std::int64_t s, std::int64_t h, std::int64_t i) {
    const std::size_t o = query(s, h, i) * at(p_.value_size);
    const A sink = static_cast<A>(p_.sink[h]), lse = out.lse[row_of(s, h, i)], share = std::exp(sink - lse);
    out.dsink[at(h)] -= share * delta_of(p_.dout + o, &out.o[o]);
    if (!p_.with_terms) return;
    const A sizes = std::abs(sink) + std::abs(lse);  // rounded in the exponent of the share
    out.dsink_terms[at(h)] += share * (dot_of_magnitudes(p_.dout + o, &out.o_terms[o], p_.value_size) +
                                       sizes * dot_of_magnitudes(p_.dout + o, &out.o[o], p_.value_size));
  }

  void add_to_parameters(std::int64_t s, std::int64_t h, std::int64_t i, const NaivePair<A>& x) {
    out.dspan[at(h)] += x.slope * x.along;
    const double* t = table(h, x);
    add(&out.dcontent_bias[at(h * p_.key_size)], x.gradient, p_.k + key(s, h, x.key) * at(p_.key_size), p_.key_size);
    if (t == nullptr) return;
    add(&out.dposition_bias[at(h * p_.key_size)], x.gradient, t, p_.key_size);
    const A* q = &position_[query(s, h, i) * at(p_.key_size)];
    add(&out.dtable[table_at(h, x)], x.gradient, q, p_.key_size);
    if (p_.with_terms) add_magnitudes(&out.dtable_terms[table_at(h, x)], x.gradient_terms, q, p_.key_size);
  }

  NaiveProblem p_;
  Round round_;
  std::vector<A> content_, position_;  // q + u and q + w, as operands of products
};

}  // namespace longstride::kernels
