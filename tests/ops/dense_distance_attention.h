// Cases of attention with a distance term, and their results by definition (kernels/attention/naive.h).
#pragma once
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <ostream>
#include <string>
#include <vector>

#include "kernels/attention/naive.h"
#include "kernels/base/philox.h"
#include "tests/support/rounding.h"

namespace longstride::testing {

struct DistanceCase {
  std::string name;
  std::int64_t batch = 2, n_q = 1, n_k = 1, heads = 2, size = 8, value_size = 8;
  std::int64_t distances = 0, tables = 1;  // 0: no distance term
  bool biases = false;
  std::vector<double> span = {};  // one per head; empty: none
  double longest_span = 0, ramp = 0;
  std::vector<double> first_key = {};  // one per sequence; empty: 0
  std::int64_t window = 0;
  bool self = true;
  std::vector<std::int32_t> dilation = {};
  float p = 0;
  std::int64_t document = 0;     // head h's bounds: documents of document + h keys, without the last two; 0: none
  std::int64_t saved_bytes = 0;  // scratch for gradients of scores; 0: the default

  double scale() const { return 1 / std::sqrt(static_cast<double>(size)); }
};

inline void PrintTo(const DistanceCase& c, std::ostream* out) { *out << c.name; }  // in ctest's lists

inline constexpr std::uint64_t dropout_seed = 11;
inline constexpr std::uint32_t dropout_layer = 4;
inline constexpr std::int64_t dropout_step = 9, dropout_first_sequence = 5;

// The bounds of all query rows, (batch, heads, n_q); empty if there are none. end: the ends, or the beginnings.
inline std::vector<double> bounds_of(const DistanceCase& c, bool end) {
  std::vector<double> bounds;
  for (std::int64_t row = 0; c.document > 0 && row < c.batch * c.heads * c.n_q; ++row) {
    const std::int64_t length = c.document + row / c.n_q % c.heads, position = c.n_k - c.n_q + row % c.n_q;
    bounds.push_back(static_cast<double>(position / length * length + (end ? length - 2 : 0)));
  }
  return bounds;
}

// K / (1 - p) of a pair.
inline double kept(const DistanceCase& c, std::int64_t s, std::int64_t h, std::int64_t i, std::int64_t j) {
  if (c.p == 0) return 1;
  const std::int64_t r = ((s + dropout_first_sequence) * c.heads + h) * c.n_q + i;
  const kernels::Philox4 drawn =
      kernels::philox(dropout_seed, static_cast<std::uint64_t>(r * ((c.n_k + 3) / 4) + j / 4), dropout_step,
                      kernels::domain_of(kernels::Purpose::attention_dropout, dropout_layer));
  const double p = static_cast<double>(c.p);
  return drawn.word[j % 4] < std::ceil(p * 4294967296.0) ? 0 : 1 / (1 - p);
}

struct DistanceValues {
  std::vector<double> q, k, v, dout, table, content_bias, position_bias;
};

// Gradients of parameters without what was there before.
template <class T>
using DistanceResult = kernels::NaiveResult<T>;

// The pairs of query row i, in the arithmetic of T.
template <class T>
std::vector<kernels::NaivePair<T>> pairs_of(const DistanceCase& c, std::int64_t s, std::int64_t h, std::int64_t i) {
  std::vector<kernels::NaivePair<T>> pairs;
  const auto of_head = [&](const auto& x, auto none) { return x.empty() ? none : x[static_cast<std::size_t>(h)]; };
  const std::int64_t position = c.n_k - c.n_q + i, step = of_head(c.dilation, 1);
  const double first = c.first_key.empty() ? 0 : c.first_key[static_cast<std::size_t>(s)];
  const std::int64_t length = c.document + h, document = c.document > 0 ? position / length * length : 0;
  const auto end = static_cast<T>(c.ramp + of_head(c.span, 0.0) * c.longest_span);
  for (std::int64_t m = c.self ? 0 : 1; c.window == 0 || m < c.window; ++m) {
    const std::int64_t j = position - m * step;
    if (j < document || static_cast<double>(j) < first) break;
    if (c.document > 0 && j >= document + length - 2) continue;
    const T ramp = c.span.empty() ? T(1) : (end - static_cast<T>(m * step)) / static_cast<T>(c.ramp);
    if (ramp < T(1) / 1024) break;
    const auto slope = ramp < 1 ? static_cast<T>(c.longest_span / c.ramp) : T(0);
    pairs.push_back({j, m * step, std::min(ramp, T(1)), slope, static_cast<T>(kept(c, s, h, i, j))});
  }
  return pairs;
}

// Operands are rounded in single precision only.
template <class T>
DistanceResult<T> dense_distance_attention(const DistanceCase& c, const DistanceValues& in, Dtype operands) {
  const auto data = [](const std::vector<double>& x) { return x.data(); };
  typename kernels::NaiveAttention<T>::Round round;
  if (sizeof(T) == sizeof(float)) round = [operands](double x) { return rounded(x, operands); };
  kernels::NaiveAttention<T> naive(
      {c.batch, c.n_q, c.n_k, c.heads, c.size, c.value_size, c.scale(), data(in.q), data(in.k), data(in.v),
       data(in.dout), c.distances, c.tables, data(in.table), c.biases ? data(in.content_bias) : nullptr,
       c.biases ? data(in.position_bias) : nullptr, true},
      round);
  return naive.run([&](std::int64_t s, std::int64_t h, std::int64_t i) { return pairs_of<T>(c, s, h, i); });
}

}  // namespace longstride::testing
