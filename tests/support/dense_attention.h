// Attention from its definition (kernels/attention/naive.h) over the brute-force mask. In double it is the correct
// result; in float, with what a naive implementation stores rounded to the tested type, it gives the allowed error.
#pragma once
#include <cmath>
#include <cstdint>
#include <vector>

#include "kernels/attention/naive.h"
#include "kernels/attention/pattern/pattern.h"
#include "tests/support/drawn_normals.h"
#include "tests/support/rounding.h"

namespace longstride::kernels {

struct AttentionShape {
  std::int64_t batch = 1, n = 1, heads = 1, key_size = 4, value_size = 4;
  std::int64_t queries = 0;    // 0: n
  std::int64_t key_heads = 0;  // 0: heads
  std::uint32_t draw = 0;      // which of many random inputs

  std::int64_t n_q() const { return queries > 0 ? queries : n; }
  std::int64_t heads_of_keys() const { return key_heads > 0 ? key_heads : heads; }
  std::int64_t rows() const { return batch * heads * n_q(); }
  double scale() const { return 1 / std::sqrt(static_cast<double>(key_size)); }
};

// All results of one call, (batch, rows, heads, size) and (batch, heads, n_q).
using AttentionResult = NaiveResult<double>;

struct AttentionInput {
  AttentionShape shape;
  Dtype dtype;
  std::vector<double> q, k, v, dout;  // representable in dtype

  AttentionInput(const AttentionShape& s, Dtype type) : shape(s), dtype(type) {
    const auto fill = [&](std::vector<double>& x, std::int64_t count, std::uint64_t stream) {
      const std::vector<double>& normals = testing::drawn_normals(stream, s.draw, static_cast<std::size_t>(count));
      x.resize(static_cast<std::size_t>(count));
#pragma omp parallel for
      for (std::int64_t i = 0; i < count; ++i)
        x[static_cast<std::size_t>(i)] = testing::rounded(normals[static_cast<std::size_t>(i)], type);
    };
    const std::int64_t keys = s.batch * s.n * s.heads_of_keys();
    fill(q, s.rows() * s.key_size, 1);
    fill(k, keys * s.key_size, 2);
    fill(v, keys * s.value_size, 3);
    fill(dout, s.rows() * s.value_size, 4);
  }
};

// The positions that position i of a head may attend to, from the definition of the pattern.
using Mask = std::vector<std::vector<std::int32_t>>;
inline std::vector<Mask> masks_of(const PatternConfig& pattern, std::int64_t heads, std::int64_t layer, std::int64_t n,
                                  std::int64_t queries = 0) {
  if (queries == 0) queries = n;
  std::vector<Mask> masks(static_cast<std::size_t>(heads), Mask(static_cast<std::size_t>(queries)));
#pragma omp parallel for collapse(2) schedule(dynamic, 16)
  for (std::int64_t h = 0; h < heads; ++h)
    for (std::int64_t i = 0; i < queries; ++i)
      for (std::int64_t j = 0; j < n; ++j)
        if (allowed(pattern, layer, heads, h, std::max(n, queries), i, j))
          masks[static_cast<std::size_t>(h)][static_cast<std::size_t>(i)].push_back(static_cast<std::int32_t>(j));
  return masks;
}

// In single precision without the terms, which no test asks for.
template <class A>
NaiveProblem naive_problem(const AttentionInput& in) {
  const AttentionShape& s = in.shape;
  return {.batch = s.batch,
          .n_q = s.n_q(),
          .n_k = s.n,
          .heads = s.heads,
          .key_size = s.key_size,
          .value_size = s.value_size,
          .scale = s.scale(),
          .q = in.q.data(),
          .k = in.k.data(),
          .v = in.v.data(),
          .dout = in.dout.data(),
          .with_terms = sizeof(A) == sizeof(double),
          .key_heads = s.heads_of_keys()};
}

// Logits of sinks, which shapes with an odd number of keys have, if there are enough for a typical naive error.
inline std::vector<double> sinks_of(const AttentionShape& shape) {
  std::vector<double> logits;
  for (std::int64_t h = 0; h < (shape.n % 2 == 1 && shape.n > 16 ? shape.heads : 0); ++h)
    logits.push_back(static_cast<double>(5 * h % 7) / 2 - 1);
  return logits;
}

inline NaiveAttention<double>::Round rounding_to(Dtype stored) {
  if (stored == Dtype::f64) return nullptr;
  return [stored](double x) { return testing::rounded(x, stored); };
}

// In double, with results rounded as a naive kernel stores them.
template <class A>
AttentionResult stored_result(const NaiveResult<A>& x, Dtype stored) {
  const auto copy = [&](const std::vector<A>& from, Dtype type) {
    std::vector<double> to(from.begin(), from.end());
    for (double& e : to) e = testing::rounded(e, type);
    return to;
  };
  AttentionResult out{copy(x.o, stored), copy(x.lse, Dtype::f64), copy(x.dq, stored), copy(x.dk, stored),
                      copy(x.dv, stored)};
  out.lse_terms = copy(x.lse_terms, Dtype::f64);
  out.dsink = copy(x.dsink, Dtype::f64);
  out.dsink_terms = copy(x.dsink_terms, Dtype::f64);
  out.o_terms = copy(x.o_terms, Dtype::f64);
  out.dtable = copy(x.dtable, Dtype::f64);
  out.dtable_terms = copy(x.dtable_terms, Dtype::f64);
  out.dq_terms = copy(x.dq_terms, Dtype::f64);
  out.dk_terms = copy(x.dk_terms, Dtype::f64);
  out.dv_terms = copy(x.dv_terms, Dtype::f64);
  return out;
}

// `stored` is f64 for the correct result (A = double), the tested type for the naive one.
template <class A>
AttentionResult dense_attention(const AttentionInput& in, const std::vector<Mask>& masks, Dtype stored,
                                const std::vector<double>& sinks = {}) {
  NaiveProblem problem = naive_problem<A>(in);
  if (!sinks.empty()) problem.sink = sinks.data();
  NaiveAttention<A> naive(problem, rounding_to(stored));
  naive.run([&](std::int64_t, std::int64_t h, std::int64_t i) {
    std::vector<NaivePair<A>> pairs;
    for (const std::int32_t j : masks[static_cast<std::size_t>(h)][static_cast<std::size_t>(i)])
      pairs.push_back({.key = j});
    return pairs;
  });
  return stored_result(naive.out, stored);
}

}  // namespace longstride::kernels
