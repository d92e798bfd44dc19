// Attention with a distance term by its definition (kernels/distance_attention/distance_attention.h): every pair in
// turn, in the arithmetic of T, with operands of products rounded to a type.
#pragma once
#include <cmath>
#include <cstdint>
#include <limits>
#include <ostream>
#include <string>
#include <vector>

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
  std::int64_t saved_bytes = 0;  // scratch for gradients of scores; 0: the default

  double scale() const { return 1 / std::sqrt(static_cast<double>(size)); }
};

inline void PrintTo(const DistanceCase& c, std::ostream* out) { *out << c.name; }  // in ctest's lists

inline constexpr std::uint64_t dropout_seed = 11;
inline constexpr std::uint32_t dropout_layer = 4;
inline constexpr std::int64_t dropout_step = 9, dropout_first_sequence = 5;

struct DistanceValues {
  std::vector<double> q, k, v, dout, table, content_bias, position_bias;
};

// Gradients of parameters without what was there before.
template <class T>
struct DistanceResult {
  std::vector<T> o, lse, dq, dk, dv, dtable, dcontent_bias, dposition_bias, dspan;
};

template <class T>
class DenseDistanceAttention {
 public:
  DenseDistanceAttention(const DistanceCase& c, const DistanceValues& in, Dtype operands)
      : c_(c), in_(in), operands_(operands) {
    const auto zeros = [](std::int64_t count) { return std::vector<T>(static_cast<std::size_t>(count)); };
    out_ = {zeros(std::ssize(in.dout)), zeros(c.batch * c.heads * c.n_q), zeros(std::ssize(in.q)),
            zeros(std::ssize(in.k)),    zeros(std::ssize(in.v)),          zeros(std::ssize(in.table)),
            zeros(c.heads * c.size),    zeros(c.heads * c.size),          zeros(c.heads)};
    for (std::int64_t s = 0; s < c.batch; ++s)
      for (std::int64_t h = 0; h < c.heads; ++h)
        for (std::int64_t i = 0; i < c.n_q; ++i) add_query(s, h, i);
  }
  const DistanceResult<T>& result() const { return out_; }

 private:
  struct Pair {
    std::int64_t j, distance;
    T score, weight, kept;  // kept: K / (1 - p)
  };
  static std::size_t at(std::int64_t x) { return static_cast<std::size_t>(x); }
  std::size_t row(std::int64_t n, std::int64_t s, std::int64_t i, std::int64_t h, std::int64_t size) const {
    return at(((s * n + i) * c_.heads + h) * size);
  }
  std::size_t table_row(std::int64_t h, std::int64_t distance) const {
    return at((std::min(distance, c_.distances - 1) * c_.tables + h % c_.tables) * c_.size);
  }
  T operand(T x) const { return sizeof(T) == 8 ? x : static_cast<T>(rounded(static_cast<double>(x), operands_)); }
  // q + bias, as operands of products.
  std::vector<T> biased(const std::vector<double>& bias, std::size_t q, std::int64_t h) const {
    std::vector<T> sum;
    for (std::int64_t d = 0; d < c_.size; ++d) {
      const T x = static_cast<T>(in_.q[q + at(d)]);
      sum.push_back(c_.biases ? operand(x + static_cast<T>(bias[at(h * c_.size + d)])) : x);
    }
    return sum;
  }
  T weight(std::int64_t h, std::int64_t distance) const {
    if (c_.span.empty()) return 1;
    const T w = (static_cast<T>(c_.ramp + c_.span[at(h)] * c_.longest_span) - static_cast<T>(distance)) /
                static_cast<T>(c_.ramp);
    return w < T(1) / 1024 ? T(0) : w > 1 ? T(1) : w;
  }
  T kept(std::int64_t s, std::int64_t h, std::int64_t i, std::int64_t j) const {
    if (c_.p == 0) return 1;
    const std::int64_t r = ((s + dropout_first_sequence) * c_.heads + h) * c_.n_q + i;
    const kernels::Philox4 drawn =
        kernels::philox(dropout_seed, static_cast<std::uint64_t>(r * ((c_.n_k + 3) / 4) + j / 4), dropout_step,
                        kernels::domain_of(kernels::Purpose::attention_dropout, dropout_layer));
    const double limit = std::ceil(static_cast<double>(c_.p) * 4294967296.0);
    return drawn.word[j % 4] < limit ? T(0) : T(1) / (T(1) - static_cast<T>(c_.p));
  }

  std::vector<Pair> pairs_of(std::int64_t s, std::int64_t h, std::int64_t i) const {
    std::vector<Pair> pairs;
    const std::int64_t position = c_.n_k - c_.n_q + i, step = c_.dilation.empty() ? 1 : c_.dilation[at(h)];
    const double first = c_.first_key.empty() ? 0 : c_.first_key[at(s)];
    for (std::int64_t m = c_.self ? 0 : 1; c_.window == 0 || m < c_.window; ++m) {
      const std::int64_t j = position - m * step;
      if (j < 0 || static_cast<double>(j) < first) break;
      const T w = weight(h, m * step);
      if (w == 0) break;
      T score = 0;
      const std::size_t k = row(c_.n_k, s, j, h, c_.size), t = c_.distances > 0 ? table_row(h, m * step) : 0;
      for (std::int64_t d = 0; d < c_.size; ++d) {
        score += content_[at(d)] * static_cast<T>(in_.k[k + at(d)]);
        if (c_.distances > 0) score += position_[at(d)] * static_cast<T>(in_.table[t + at(d)]);
      }
      pairs.push_back({j, m * step, score * static_cast<T>(c_.scale()), w, kept(s, h, i, j)});
    }
    return pairs;
  }

  void add_query(std::int64_t s, std::int64_t h, std::int64_t i) {
    const std::size_t q = row(c_.n_q, s, i, h, c_.size);
    content_ = biased(in_.content_bias, q, h);
    if (c_.distances > 0) position_ = biased(in_.position_bias, q, h);
    const std::vector<Pair> pairs = pairs_of(s, h, i);
    T& lse = out_.lse[at((s * c_.heads + h) * c_.n_q + i)];
    lse = -std::numeric_limits<T>::infinity();
    if (pairs.empty()) return;
    T largest = pairs[0].score, sum = 0;
    for (const Pair& x : pairs) largest = std::max(largest, x.score);
    for (const Pair& x : pairs) sum += x.weight * std::exp(x.score - largest);
    lse = largest + std::log(sum);
    const std::size_t o = row(c_.n_q, s, i, h, c_.value_size);
    std::vector<T> p;
    for (const Pair& x : pairs) p.push_back(operand(x.weight * std::exp(x.score - lse) * x.kept));
    T delta = 0;
    for (std::int64_t d = 0; d < c_.value_size; ++d) {
      T total = 0;
      for (std::size_t n = 0; n < pairs.size(); ++n)
        total += p[n] * static_cast<T>(in_.v[row(c_.n_k, s, pairs[n].j, h, c_.value_size) + at(d)]);
      out_.o[o + at(d)] = total;
      delta += operand(total) * static_cast<T>(in_.dout[o + at(d)]);
    }
    for (const Pair& x : pairs) add_pair(s, h, i, x, lse, delta);
  }

  void add_pair(std::int64_t s, std::int64_t h, std::int64_t i, const Pair& x, T lse, T delta) {
    const std::size_t o = row(c_.n_q, s, i, h, c_.value_size), v = row(c_.n_k, s, x.j, h, c_.value_size);
    const std::size_t q = row(c_.n_q, s, i, h, c_.size), k = row(c_.n_k, s, x.j, h, c_.size);
    const T unweighted = std::exp(x.score - lse), p = operand(x.weight * unweighted * x.kept);
    T dp = 0;
    for (std::int64_t d = 0; d < c_.value_size; ++d) {
      dp += static_cast<T>(in_.dout[o + at(d)]) * static_cast<T>(in_.v[v + at(d)]);
      out_.dv[v + at(d)] += p * static_cast<T>(in_.dout[o + at(d)]);
    }
    const T along = unweighted * (dp * x.kept - delta), scale = static_cast<T>(c_.scale());
    const T ds = operand(x.weight * along);
    if (x.weight < 1) out_.dspan[at(h)] += along * static_cast<T>(c_.longest_span / c_.ramp);
    for (std::int64_t d = 0; d < c_.size; ++d) {
      const std::size_t bias = at(h * c_.size + d);
      const T content = scale * ds * static_cast<T>(in_.k[k + at(d)]);
      out_.dk[k + at(d)] += scale * ds * content_[at(d)];
      out_.dcontent_bias[bias] += content;
      out_.dq[q + at(d)] += content;
      if (c_.distances == 0) continue;
      const std::size_t t = table_row(h, x.distance) + at(d);
      const T position = scale * ds * static_cast<T>(in_.table[t]);
      out_.dtable[t] += scale * ds * position_[at(d)];
      out_.dposition_bias[bias] += position;
      out_.dq[q + at(d)] += position;
    }
  }

  DistanceCase c_;
  const DistanceValues& in_;
  Dtype operands_;
  DistanceResult<T> out_;
  std::vector<T> content_, position_;  // the query at hand, with its biases
};

}  // namespace longstride::testing
