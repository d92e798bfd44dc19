// Attention from its definition, dense, row by row over the brute-force mask. In double it is the correct result; in
// float, with the values that a naive implementation stores rounded to the tested type, it gives the allowed error.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numeric>
#include <vector>

#include "kernels/attention/pattern/pattern.h"
#include "tests/support/drawn_normals.h"
#include "tests/support/rounding.h"

namespace longstride::kernels {

struct AttentionShape {
  std::int64_t batch = 1, n = 1, heads = 1, key_size = 4, value_size = 4;

  std::int64_t key_count() const { return batch * n * heads * key_size; }
  std::int64_t value_count() const { return batch * n * heads * value_size; }
  std::int64_t rows() const { return batch * heads * n; }
  double scale() const { return 1 / std::sqrt(static_cast<double>(key_size)); }
};

// All results of one call, (batch, n, heads, size) and (batch, heads, n), and the size of the terms whose rounding
// makes the errors of the gradients. The gradients of scores are differences that may cancel: dq_terms and dk_terms are
// dq and dk with absolute values of all summands. The weights of dv are exponentials of differences: dv_terms is dv
// with absolute values, each times the sizes of the score's terms and of lse. lse_terms is the mean of those sizes,
// plus 1 for the sum of exponentials.
struct AttentionResult {
  std::vector<double> o, lse, dq, dk, dv, lse_terms, dq_terms, dk_terms, dv_terms;
};

struct AttentionInput {
  AttentionShape shape;
  Dtype dtype;
  std::vector<double> q, k, v, dout;  // representable in dtype

  AttentionInput(const AttentionShape& s, Dtype type) : shape(s), dtype(type) {
    const auto fill = [&](std::vector<double>& x, std::int64_t count, std::uint64_t stream) {
      const std::vector<double>& normals = testing::drawn_normals(stream, 0, static_cast<std::size_t>(count));
      x.resize(static_cast<std::size_t>(count));
#pragma omp parallel for
      for (std::int64_t i = 0; i < count; ++i)
        x[static_cast<std::size_t>(i)] = testing::rounded(normals[static_cast<std::size_t>(i)], type);
    };
    fill(q, s.key_count(), 1);
    fill(k, s.key_count(), 2);
    fill(v, s.value_count(), 3);
    fill(dout, s.value_count(), 4);
  }
};

// The positions that position i of a head may attend to, from the definition of the pattern.
using Mask = std::vector<std::vector<std::int32_t>>;
inline std::vector<Mask> masks_of(const PatternConfig& pattern, std::int64_t heads, std::int64_t layer,
                                  std::int64_t n) {
  std::vector<Mask> masks(static_cast<std::size_t>(heads), Mask(static_cast<std::size_t>(n)));
#pragma omp parallel for collapse(2) schedule(dynamic, 16)
  for (std::int64_t h = 0; h < heads; ++h)
    for (std::int64_t i = 0; i < n; ++i)
      for (std::int64_t j = 0; j <= i; ++j)
        if (allowed(pattern, layer, heads, h, i, j))
          masks[static_cast<std::size_t>(h)][static_cast<std::size_t>(i)].push_back(static_cast<std::int32_t>(j));
  return masks;
}

// The arithmetic of one row of queries and of one row of keys, in A: double, or float with the values that a naive
// implementation stores rounded to the tested type.
template <class A>
struct DenseRow {
  Dtype stored;  // f64: unrounded
  std::int64_t key_size, value_size;
  A scale;

  A store(A x) const {
    return stored == Dtype::f64 ? x : static_cast<A>(testing::rounded(static_cast<double>(x), stored));
  }
  static A dot(const double* a, const double* b, std::int64_t size) {
    A sum = 0;
    for (std::int64_t d = 0; d < size; ++d) sum += static_cast<A>(a[d]) * static_cast<A>(b[d]);
    return sum;
  }
  static A dot_of_magnitudes(const double* a, const double* b, std::int64_t size) {
    A sum = 0;
    for (std::int64_t d = 0; d < size; ++d) sum += std::abs(static_cast<A>(a[d]) * static_cast<A>(b[d]));
    return sum;
  }
  // dout . o. Not with dot(): it is subtracted from the product of dout and v, which no implementation sums in the same
  // order, and with the same order the two would cancel exactly where only one key is seen.
  A delta(const double* dout, const double* o) const {
    A even = 0, odd = 0;
    for (std::int64_t d = value_size; d-- > 0;)
      (d % 2 == 0 ? even : odd) += static_cast<A>(dout[d]) * static_cast<A>(o[d]);
    return even + odd;
  }
  A score(const double* q, const double* k) const { return scale * dot(q, k, key_size); }
  A score_terms(const double* q, const double* k) const { return scale * dot_of_magnitudes(q, k, key_size); }
  // The gradient of a score, without the scale.
  A score_gradient(A p, const double* dout, const double* v, A delta) const {
    return store(p * (dot(dout, v, value_size) - delta));
  }
  A score_gradient_terms(A p, const double* dout, const double* v, const double* o) const {
    return p * (dot_of_magnitudes(dout, v, value_size) + dot_of_magnitudes(dout, o, value_size));
  }
};

// Softmax of the scores in place; returns its lse.
template <class A>
A softmax(std::vector<A>& p) {
  A top = -std::numeric_limits<A>::infinity(), sum = 0;
  for (A s : p) top = std::max(top, s);
  for (A& s : p) sum += s = std::exp(s - top);
  for (A& s : p) s /= sum;
  return top + std::log(sum);
}

// sum_i weight_i x[row_i], rounded as stored.
template <class A, class Row>
void weighted_sum(const DenseRow<A>& math, const std::vector<A>& weight, Row&& row, A scale, double* out,
                  std::int64_t size) {
  std::vector<A> sum(static_cast<std::size_t>(size), A(0));
  for (std::size_t t = 0; t < weight.size(); ++t) {
    const double* x = row(t);
    for (std::int64_t d = 0; d < size; ++d) sum[static_cast<std::size_t>(d)] += weight[t] * static_cast<A>(x[d]);
  }
  for (std::int64_t d = 0; d < size; ++d)
    out[d] = static_cast<double>(math.store(scale * sum[static_cast<std::size_t>(d)]));
}

// The same of absolute values.
template <class A, class Row>
void weighted_magnitudes(const std::vector<A>& weight, Row&& row, A scale, double* out, std::int64_t size) {
  std::fill_n(out, size, 0.0);
  for (std::size_t t = 0; t < weight.size(); ++t)
    for (std::int64_t d = 0; d < size; ++d) out[d] += std::abs(static_cast<double>(scale * weight[t]) * row(t)[d]);
}

// Forward and backward of every row. `stored` is f64 for the correct result (A = double), the tested type for the naive
// one.
template <class A>
class DenseAttention {
 public:
  DenseAttention(const AttentionInput& in, const std::vector<Mask>& masks, Dtype stored)
      : in_(in),
        s_(in.shape),
        masks_(masks),
        math_{stored, s_.key_size, s_.value_size, static_cast<A>(s_.scale())},
        weights_(static_cast<std::size_t>(s_.rows())),
        gradients_(weights_.size()),
        terms_(weights_.size()),
        weight_terms_(weights_.size()) {}

  AttentionResult result() {
    for (std::vector<double>* x : {&out_.o, &out_.dv, &out_.dv_terms}) x->resize(in_.v.size());
    for (std::vector<double>* x : {&out_.dq, &out_.dk, &out_.dq_terms, &out_.dk_terms}) x->resize(in_.q.size());
    for (std::vector<double>* x : {&out_.lse, &out_.lse_terms}) x->resize(weights_.size());
#pragma omp parallel for schedule(dynamic, 8)
    for (std::int64_t r = 0; r < s_.rows(); ++r) query_row(r);
#pragma omp parallel for schedule(dynamic, 8)
    for (std::int64_t r = 0; r < s_.rows(); ++r) key_row(r);
    return std::move(out_);
  }

 private:
  // The first element of a head at a position; rows r are (batch, heads, n).
  std::int64_t at(std::int64_t r, std::int64_t position, std::int64_t size) const {
    return ((r / s_.n / s_.heads * s_.n + position) * s_.heads + r / s_.n % s_.heads) * size;
  }
  const std::vector<std::int32_t>& keys_of(std::int64_t r, std::int64_t i) const {
    return masks_[static_cast<std::size_t>(r / s_.n % s_.heads)][static_cast<std::size_t>(i)];
  }

  void query_row(std::int64_t r) {
    const std::int64_t i = r % s_.n;
    const auto row = static_cast<std::size_t>(r);
    const auto& keys = keys_of(r, i);
    const auto key = [&](std::size_t t) { return in_.k.data() + at(r, keys[t], s_.key_size); };
    const auto value = [&](std::size_t t) { return in_.v.data() + at(r, keys[t], s_.value_size); };
    const double* q = in_.q.data() + at(r, i, s_.key_size);
    const double* dout = in_.dout.data() + at(r, i, s_.value_size);
    std::vector<A>& p = weights_[row];
    for (std::size_t t = 0; t < keys.size(); ++t) p.push_back(math_.score(q, key(t)));
    const A lse = softmax(p);
    out_.lse[row] = static_cast<double>(lse);
    std::vector<A> stored_p, &p_terms = weight_terms_[row];
    for (A x : p) stored_p.push_back(math_.store(x));
    for (std::size_t t = 0; t < keys.size(); ++t)
      p_terms.push_back(p[t] * (math_.score_terms(q, key(t)) + std::abs(lse)));
    out_.lse_terms[row] = static_cast<double>(std::accumulate(p_terms.begin(), p_terms.end(), A(1)));
    double* o = out_.o.data() + at(r, i, s_.value_size);
    weighted_sum(math_, stored_p, value, A(1), o, s_.value_size);
    const A delta = math_.delta(dout, o);
    std::vector<A>&ds = gradients_[row], &ds_terms = terms_[row];
    for (std::size_t t = 0; t < keys.size(); ++t) {
      ds.push_back(math_.score_gradient(p[t], dout, value(t), delta));
      ds_terms.push_back(math_.score_gradient_terms(p[t], dout, value(t), o));
    }
    weighted_sum(math_, ds, key, math_.scale, out_.dq.data() + at(r, i, s_.key_size), s_.key_size);
    weighted_magnitudes(ds_terms, key, math_.scale, out_.dq_terms.data() + at(r, i, s_.key_size), s_.key_size);
    p = stored_p;
  }

  void key_row(std::int64_t r) {
    const std::int64_t j = r % s_.n;
    std::vector<A> p, p_terms, ds, ds_terms;
    std::vector<std::int64_t> queries;
    for (std::int64_t i = j; i < s_.n; ++i) {
      const auto& keys = keys_of(r, i);
      const auto found = std::lower_bound(keys.begin(), keys.end(), static_cast<std::int32_t>(j));
      if (found == keys.end() || *found != j) continue;
      const auto row = static_cast<std::size_t>(r - j + i), t = static_cast<std::size_t>(found - keys.begin());
      queries.push_back(i);
      p.push_back(weights_[row][t]);
      p_terms.push_back(weight_terms_[row][t]);
      ds.push_back(gradients_[row][t]);
      ds_terms.push_back(terms_[row][t]);
    }
    const auto query = [&](std::size_t t) { return in_.q.data() + at(r, queries[t], s_.key_size); };
    const auto dout = [&](std::size_t t) { return in_.dout.data() + at(r, queries[t], s_.value_size); };
    const std::int64_t key_at = at(r, j, s_.key_size), value_at = at(r, j, s_.value_size);
    weighted_sum(math_, p, dout, A(1), out_.dv.data() + value_at, s_.value_size);
    weighted_magnitudes(p_terms, dout, A(1), out_.dv_terms.data() + value_at, s_.value_size);
    weighted_sum(math_, ds, query, math_.scale, out_.dk.data() + key_at, s_.key_size);
    weighted_magnitudes(ds_terms, query, math_.scale, out_.dk_terms.data() + key_at, s_.key_size);
  }

  const AttentionInput& in_;
  const AttentionShape& s_;
  const std::vector<Mask>& masks_;
  DenseRow<A> math_;
  std::vector<std::vector<A>> weights_, gradients_, terms_, weight_terms_;  // a row for every query, by key
  AttentionResult out_;
};

template <class A>
AttentionResult dense_attention(const AttentionInput& in, const std::vector<Mask>& masks, Dtype stored) {
  return DenseAttention<A>(in, masks, stored).result();
}

}  // namespace longstride::kernels
