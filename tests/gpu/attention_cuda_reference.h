// Attention on the GPU against its definition: the dense computation in double is what is right, and the same
// computation in the tested type, as a naive implementation does it, says how far from right is allowed.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numeric>
#include <string>
#include <vector>

#include "kernels/base/cuda_types.cuh"
#include "tests/gpu/gpu.h"
#include "tests/kernels/attention_patterns.h"
#include "tests/kernels/attention_reference.h"

namespace longstride::kernels {

// x rounded to a type, and one step of that type relative to x.
inline double rounded(Dtype dtype, double x) {
  const auto f = static_cast<float>(x);
  if (dtype == Dtype::bf16) return static_cast<double>(__bfloat162float(__float2bfloat16_rn(f)));
  if (dtype == Dtype::f16) return static_cast<double>(__half2float(__float2half_rn(f)));
  return static_cast<double>(f);
}
inline double ulp_of(Dtype dtype) { return dtype == Dtype::bf16 ? 0x1p-7 : dtype == Dtype::f16 ? 0x1p-10 : 0x1p-23; }

// Everything of one call, (batch, n, heads, size) and (batch, heads, n), and of what size the terms are whose rounding
// makes the gradients' errors. Those of scores are differences that may cancel: dq_terms and dk_terms are dq and dk
// with the absolute values of all that is added up. The weights of dv are exponentials of differences: dv_terms is dv
// with absolute values, each times the sizes of the score's terms and of lse. lse_terms is their mean, and 1 for the
// sum of exponentials.
struct AttentionResult {
  std::vector<double> o, lse, dq, dk, dv, lse_terms, dq_terms, dk_terms, dv_terms;
};
struct AttentionInput {
  AttentionShape shape;
  Dtype dtype;
  std::vector<double> q, k, v, dout;  // representable in dtype

  AttentionInput(const AttentionShape& s, Dtype type) : shape(s), dtype(type) {
    const auto fill = [&](std::vector<double>& x, std::int64_t count, std::uint64_t key) {
      x.resize(static_cast<std::size_t>(count));
#pragma omp parallel for
      for (std::int64_t i = 0; i < count; ++i)
        x[static_cast<std::size_t>(i)] =
            rounded(type, normal_of(philox(key, static_cast<std::uint64_t>(i), 0, domain_of(Purpose::test, 0))));
    };
    fill(q, s.key_count(), 1);
    fill(k, s.key_count(), 2);
    fill(v, s.value_count(), 3);
    fill(dout, s.value_count(), 4);
  }
};

// What position i of a head may attend to, by the definition of the pattern.
using Mask = std::vector<std::vector<std::int32_t>>;
inline std::vector<Mask> masks_of(const NamedPattern& p, std::int64_t layer, std::int64_t n) {
  std::vector<Mask> masks(static_cast<std::size_t>(p.heads), Mask(static_cast<std::size_t>(n)));
#pragma omp parallel for collapse(2) schedule(dynamic, 16)
  for (std::int64_t h = 0; h < p.heads; ++h)
    for (std::int64_t i = 0; i < n; ++i)
      for (std::int64_t j = 0; j <= i; ++j)
        if (allowed(p.pattern, layer, p.heads, h, i, j))
          masks[static_cast<std::size_t>(h)][static_cast<std::size_t>(i)].push_back(static_cast<std::int32_t>(j));
  return masks;
}

// The arithmetic of one row of queries and of one row of keys, in A (double, or float with what a naive
// implementation stores rounded to the tested type).
template <class A>
struct DenseRow {
  Dtype stored;  // f64 stores as it is
  std::int64_t key_size, value_size;
  A scale;

  A store(A x) const { return stored == Dtype::f64 ? x : static_cast<A>(rounded(stored, static_cast<double>(x))); }
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
  // dout . o. Not by dot: no implementation sums it in the order of the product of dout and v, from which it is
  // subtracted, and with the same order the two would cancel to nothing where one key alone is seen.
  A delta(const double* dout, const double* o) const {
    A even = 0, odd = 0;
    for (std::int64_t d = value_size; d-- > 0;)
      (d % 2 == 0 ? even : odd) += static_cast<A>(dout[d]) * static_cast<A>(o[d]);
    return even + odd;
  }
  A score(const double* q, const double* k) const { return scale * dot(q, k, key_size); }
  A score_terms(const double* q, const double* k) const { return scale * dot_of_magnitudes(q, k, key_size); }
  // The gradient of a score, but for the scale.
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

// Forward and backward of every row. `stored` is f64 for what is right (A = double), the tested type for the naive one.
template <class A>
AttentionResult dense_attention(const AttentionInput& in, const std::vector<Mask>& masks, Dtype stored) {
  const AttentionShape& s = in.shape;
  const DenseRow<A> math{stored, s.key_size, s.value_size, static_cast<A>(s.scale())};
  AttentionResult out;
  out.o.resize(in.v.size());
  out.lse.resize(static_cast<std::size_t>(s.rows()));
  out.dq.resize(in.q.size());
  out.dk.resize(in.q.size());
  out.dv.resize(in.v.size());
  out.lse_terms.resize(static_cast<std::size_t>(s.rows()));
  out.dq_terms.resize(in.q.size());
  out.dk_terms.resize(in.q.size());
  out.dv_terms.resize(in.v.size());
  std::vector<std::vector<A>> weights(static_cast<std::size_t>(s.rows())), gradients(weights.size());
  std::vector<std::vector<A>> terms(weights.size()), weight_terms(weights.size());
#pragma omp parallel for schedule(dynamic, 8)
  for (std::int64_t r = 0; r < s.rows(); ++r) {  // (batch, heads, n)
    const std::int64_t i = r % s.n, h = r / s.n % s.heads, b = r / s.n / s.heads;
    const auto at = [&](std::int64_t position) { return (b * s.n + position) * s.heads + h; };
    const auto& keys = masks[static_cast<std::size_t>(h)][static_cast<std::size_t>(i)];
    const auto key = [&](std::size_t t) { return in.k.data() + at(keys[t]) * s.key_size; };
    const auto value = [&](std::size_t t) { return in.v.data() + at(keys[t]) * s.value_size; };
    std::vector<A>& p = weights[static_cast<std::size_t>(r)];
    for (std::size_t t = 0; t < keys.size(); ++t) p.push_back(math.score(in.q.data() + at(i) * s.key_size, key(t)));
    const A lse = softmax(p);
    out.lse[static_cast<std::size_t>(r)] = static_cast<double>(lse);
    std::vector<A> stored_p, &p_terms = weight_terms[static_cast<std::size_t>(r)];
    for (A x : p) stored_p.push_back(math.store(x));
    for (std::size_t t = 0; t < keys.size(); ++t)
      p_terms.push_back(p[t] * (math.score_terms(in.q.data() + at(i) * s.key_size, key(t)) + std::abs(lse)));
    out.lse_terms[static_cast<std::size_t>(r)] =
        static_cast<double>(std::accumulate(p_terms.begin(), p_terms.end(), A(1)));
    double* o = out.o.data() + at(i) * s.value_size;
    const double* dout = in.dout.data() + at(i) * s.value_size;
    weighted_sum(math, stored_p, value, A(1), o, s.value_size);
    const A delta = math.delta(dout, o);
    std::vector<A>&ds = gradients[static_cast<std::size_t>(r)], &ds_terms = terms[static_cast<std::size_t>(r)];
    for (std::size_t t = 0; t < keys.size(); ++t) {
      ds.push_back(math.score_gradient(p[t], dout, value(t), delta));
      ds_terms.push_back(math.score_gradient_terms(p[t], dout, value(t), o));
    }
    weighted_sum(math, ds, key, math.scale, out.dq.data() + at(i) * s.key_size, s.key_size);
    weighted_magnitudes(ds_terms, key, math.scale, out.dq_terms.data() + at(i) * s.key_size, s.key_size);
    p = stored_p;
  }
#pragma omp parallel for schedule(dynamic, 8)
  for (std::int64_t r = 0; r < s.rows(); ++r) {
    const std::int64_t j = r % s.n, h = r / s.n % s.heads, b = r / s.n / s.heads;
    const auto at = [&](std::int64_t position) { return (b * s.n + position) * s.heads + h; };
    std::vector<A> p, p_terms, ds, ds_terms;
    std::vector<std::int64_t> queries;
    for (std::int64_t i = j; i < s.n; ++i) {
      const auto& keys = masks[static_cast<std::size_t>(h)][static_cast<std::size_t>(i)];
      const auto found = std::lower_bound(keys.begin(), keys.end(), static_cast<std::int32_t>(j));
      if (found == keys.end() || *found != j) continue;
      const auto row = static_cast<std::size_t>(r - j + i), t = static_cast<std::size_t>(found - keys.begin());
      queries.push_back(i);
      p.push_back(weights[row][t]);
      p_terms.push_back(weight_terms[row][t]);
      ds.push_back(gradients[row][t]);
      ds_terms.push_back(terms[row][t]);
    }
    const auto query = [&](std::size_t t) { return in.q.data() + at(queries[t]) * s.key_size; };
    const auto dout = [&](std::size_t t) { return in.dout.data() + at(queries[t]) * s.value_size; };
    weighted_sum(math, p, dout, A(1), out.dv.data() + at(j) * s.value_size, s.value_size);
    weighted_magnitudes(p_terms, dout, A(1), out.dv_terms.data() + at(j) * s.value_size, s.value_size);
    weighted_sum(math, ds, query, math.scale, out.dk.data() + at(j) * s.key_size, s.key_size);
    weighted_magnitudes(ds_terms, query, math.scale, out.dk_terms.data() + at(j) * s.key_size, s.key_size);
  }
  return out;
}

// The call on the GPU. `packed`: q, k and v are slices of one (batch, n, heads (2 key_size + value_size)) tensor and so
// are their gradients, as the model has them; else each is its own.
template <class T>
class DeviceAttention {
 public:
  DeviceAttention(const AttentionPlan& plan, const AttentionInput& in, AttentionPath path, bool packed)
      : shape_(in.shape),
        packed_(packed),
        inputs_(pack(in)),
        gradients_(inputs_.count()),
        dout_(converted(in.dout)),
        o_(in.v.size()),
        lse_(static_cast<std::size_t>(shape_.rows())),
        forward_{&plan,   slice(inputs_, 0), slice(inputs_, 1), slice(inputs_, 2),
                 own(o_), lse_of_shape(),    shape_.scale(),    nullptr,
                 path},
        backward_{
            &plan,      forward_.q,           forward_.k,           forward_.v,           forward_.o,     forward_.lse,
            own(dout_), slice(gradients_, 0), slice(gradients_, 1), slice(gradients_, 2), shape_.scale(), nullptr,
            path},
        forward_workspace_(cuda::attention_workspace_bytes(forward_)),
        backward_workspace_(cuda::attention_workspace_bytes(backward_)) {
    forward_.workspace = forward_workspace_.data();
    backward_.workspace = backward_workspace_.data();
  }

  // Everything that is written starts as NaN.
  void poison() {
    cuda::check(cudaMemset(o_.data(), 0xFF, o_.bytes()), "cudaMemset");
    cuda::check(cudaMemset(lse_.data(), 0xFF, lse_.bytes()), "cudaMemset");
    cuda::check(cudaMemset(gradients_.data(), 0xFF, gradients_.bytes()), "cudaMemset");
    cuda::check(cudaMemset(backward_workspace_.data(), 0xFF, backward_workspace_.bytes()), "cudaMemset");
  }
  void run(const Launch& launch = {}) {
    cuda::attention(forward_, launch);
    cuda::attention_backward(backward_, launch);
  }
  AttentionResult result() const {
    cuda::check(cudaDeviceSynchronize(), "attention");
    const std::vector<T> g = gradients_.host(), o = o_.host();
    const std::vector<float> lse = lse_.host();
    AttentionResult r;
    r.o = plain(o);
    r.lse.assign(lse.begin(), lse.end());
    r.dq = unpacked(g, 0);
    r.dk = unpacked(g, 1);
    r.dv = unpacked(g, 2);
    return r;
  }

 private:
  std::int64_t size_of(int which) const { return which < 2 ? shape_.key_size : shape_.value_size; }
  std::int64_t positions() const { return shape_.batch * shape_.n; }
  std::int64_t row_of(int which) const {  // elements from one position to the next
    return packed_ ? shape_.heads * (2 * shape_.key_size + shape_.value_size) : shape_.heads * size_of(which);
  }
  std::int64_t begin_of(int which) const {
    return which * shape_.heads * shape_.key_size * (packed_ ? 1 : positions());
  }
  template <class F>
  void each_element(int which, F&& f) const {
    const std::int64_t width = shape_.heads * size_of(which);
#pragma omp parallel for
    for (std::int64_t r = 0; r < positions(); ++r)
      for (std::int64_t x = 0; x < width; ++x)
        f(static_cast<std::size_t>(r * width + x), static_cast<std::size_t>(begin_of(which) + r * row_of(which) + x));
  }
  static std::vector<T> converted(const std::vector<double>& x) {
    std::vector<T> out(x.size());
#pragma omp parallel for
    for (std::size_t i = 0; i < x.size(); ++i) out[i] = cuda::from_float<T>(static_cast<float>(x[i]));
    return out;
  }
  static std::vector<double> plain(const std::vector<T>& x) {
    std::vector<double> out(x.size());
#pragma omp parallel for
    for (std::size_t i = 0; i < x.size(); ++i) out[i] = static_cast<double>(cuda::to_float(x[i]));
    return out;
  }
  std::vector<T> pack(const AttentionInput& in) const {
    std::vector<T> out(2 * in.q.size() + in.v.size());
    const std::vector<double>* from[] = {&in.q, &in.k, &in.v};
    for (int which = 0; which < 3; ++which)
      each_element(which, [&](std::size_t x, std::size_t at) {
        out[at] = cuda::from_float<T>(static_cast<float>((*from[which])[x]));
      });
    return out;
  }
  std::vector<double> unpacked(const std::vector<T>& all, int which) const {
    std::vector<double> out(static_cast<std::size_t>(positions() * shape_.heads * size_of(which)));
    each_element(which, [&](std::size_t x, std::size_t at) { out[x] = static_cast<double>(cuda::to_float(all[at])); });
    return out;
  }
  static View view(void* data, Dtype dtype, std::vector<std::int64_t> sizes, std::vector<std::int64_t> strides) {
    View v;
    v.data = data;
    v.dtype = dtype;
    v.rank = static_cast<int>(sizes.size());
    std::copy(sizes.begin(), sizes.end(), v.size);
    std::copy(strides.begin(), strides.end(), v.stride);
    return v;
  }
  View rows(T* data, std::int64_t row, std::int64_t size) const {
    return view(data, DtypeOf<T>::value, {shape_.batch, shape_.n, shape_.heads, size}, {shape_.n * row, row, size, 1});
  }
  View slice(const test::DeviceArray<T>& x, int which) const {
    return rows(x.data() + begin_of(which), row_of(which), size_of(which));
  }
  View own(const test::DeviceArray<T>& x) const {
    return rows(x.data(), shape_.heads * shape_.value_size, shape_.value_size);
  }
  View lse_of_shape() const {
    return view(lse_.data(), Dtype::f32, {shape_.batch, shape_.heads, shape_.n},
                {shape_.heads * shape_.n, shape_.n, 1});
  }

  AttentionShape shape_;
  bool packed_;
  test::DeviceArray<T> inputs_, gradients_, dout_, o_;
  test::DeviceArray<float> lse_;
  AttentionArgs forward_;
  AttentionBackwardArgs backward_;
  test::DeviceArray<unsigned char> forward_workspace_, backward_workspace_;
};

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

// At most twice the error of the naive computation, and beyond it what another order of the same sums may give: one
// rounding of f32 at the size of the terms that were added up, and one of the type at the size of the result. Among few
// large elements the naive one may be rounded by next to nothing.
inline void expect_as_good_as_naive(const char* name, const std::vector<double>& x, const std::vector<double>& naive,
                                    const std::vector<double>& exact, Dtype dtype, const std::vector<double>& terms,
                                    const std::string& where) {
  const Difference mine = difference_of(x, exact), allowed_error = difference_of(naive, exact);
  const double rounding = ulp_of(dtype) / 2, term_rounding = ulp_of(Dtype::f32) / 2;
  EXPECT_LE(mine.largest, 2 * allowed_error.largest + rounding * largest_of(exact) + term_rounding * largest_of(terms))
      << name << ", largest error, " << where;
  EXPECT_LE(mine.rms, 2 * allowed_error.rms + rounding * rms_of(exact) + term_rounding * rms_of(terms))
      << name << ", rms error, " << where;
}
inline void expect_as_good_as_naive(const AttentionResult& x, const AttentionResult& naive,
                                    const AttentionResult& exact, const AttentionInput& in, const std::string& where) {
  expect_as_good_as_naive("o", x.o, naive.o, exact.o, in.dtype, {}, where);
  expect_as_good_as_naive("lse", x.lse, naive.lse, exact.lse, Dtype::f32, exact.lse_terms, where);
  expect_as_good_as_naive("dq", x.dq, naive.dq, exact.dq, in.dtype, exact.dq_terms, where);
  expect_as_good_as_naive("dk", x.dk, naive.dk, exact.dk, in.dtype, exact.dk_terms, where);
  expect_as_good_as_naive("dv", x.dv, naive.dv, exact.dv, in.dtype, exact.dv_terms, where);
}

}  // namespace longstride::kernels
