// Attention straight from its definition, row by row over the brute-force mask, and the data to try it on.
#pragma once
#include <omp.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <vector>

#include "kernels/attention/attention.h"
#include "kernels/attention/pattern/pattern.h"
#include "kernels/base/philox.h"

namespace longstride::kernels {

struct AttentionShape {
  std::int64_t batch = 1, n = 1, heads = 1, key_size = 4, value_size = 4;

  std::int64_t key_count() const { return batch * n * heads * key_size; }
  std::int64_t value_count() const { return batch * n * heads * value_size; }
  std::int64_t rows() const { return batch * heads * n; }
  double scale() const { return 1 / std::sqrt(static_cast<double>(key_size)); }
};

// Layout (batch, n, heads, size), contiguous.
template <class T>
struct AttentionData {
  std::vector<T> q, k, v, dout;       // given
  std::vector<T> o, lse, dq, dk, dv;  // computed; poisoned before
  explicit AttentionData(const AttentionShape& s) {
    const auto fill = [](std::vector<T>& x, std::int64_t count, std::uint64_t key) {
      for (std::int64_t i = 0; i < count; ++i)  // rounded to f32, so that f32 and f64 see the same numbers
        x.push_back(static_cast<T>(
            static_cast<float>(normal_of(philox(key, static_cast<std::uint64_t>(i), 0, domain_of(Purpose::test, 0))))));
    };
    fill(q, s.key_count(), 1);
    fill(k, s.key_count(), 2);
    fill(v, s.value_count(), 3);
    fill(dout, s.value_count(), 4);
    const T poison = std::numeric_limits<T>::quiet_NaN();
    o.assign(v.size(), poison);
    dq.assign(q.size(), poison);
    dk.assign(k.size(), poison);
    dv.assign(v.size(), poison);
    lse.assign(static_cast<std::size_t>(s.rows()), poison);
  }
};

// Forward and backward in T's arithmetic, as a textbook does it.
template <class T>
void reference_attention(const PatternConfig& pattern, std::int64_t layer, const AttentionShape& s,
                         AttentionData<T>& x) {
  const T scale = static_cast<T>(s.scale());
  std::fill(x.dq.begin(), x.dq.end(), T(0));
  std::fill(x.dk.begin(), x.dk.end(), T(0));
  std::fill(x.dv.begin(), x.dv.end(), T(0));
  std::vector<T> score(static_cast<std::size_t>(s.n));
  for (std::int64_t b = 0; b < s.batch; ++b)
    for (std::int64_t h = 0; h < s.heads; ++h)
      for (std::int64_t i = 0; i < s.n; ++i) {
        const auto row = [&](std::vector<T>& all, std::int64_t position, std::int64_t size) {
          return all.data() + ((b * s.n + position) * s.heads + h) * size;
        };
        const T* q = row(x.q, i, s.key_size);
        const T* dout = row(x.dout, i, s.value_size);
        T* o = row(x.o, i, s.value_size);
        T* dq = row(x.dq, i, s.key_size);
        std::vector<std::int64_t> keys;
        T top = -std::numeric_limits<T>::infinity(), sum = 0, delta = 0;
        for (std::int64_t j = 0; j <= i; ++j) {
          if (!allowed(pattern, layer, s.heads, h, i, j)) continue;
          T dot = 0;
          for (std::int64_t d = 0; d < s.key_size; ++d) dot += q[d] * row(x.k, j, s.key_size)[d];
          score[static_cast<std::size_t>(j)] = scale * dot;
          top = std::max(top, scale * dot);
          keys.push_back(j);
        }
        for (std::int64_t j : keys)
          sum += score[static_cast<std::size_t>(j)] = std::exp(score[static_cast<std::size_t>(j)] - top);
        std::fill(o, o + s.value_size, T(0));
        for (std::int64_t j : keys)
          for (std::int64_t d = 0; d < s.value_size; ++d)
            o[d] += score[static_cast<std::size_t>(j)] / sum * row(x.v, j, s.value_size)[d];
        x.lse[static_cast<std::size_t>((b * s.heads + h) * s.n + i)] = top + std::log(sum);
        for (std::int64_t d = 0; d < s.value_size; ++d) delta += dout[d] * o[d];
        for (std::int64_t j : keys) {
          const T p = score[static_cast<std::size_t>(j)] / sum;
          T dp = 0;
          for (std::int64_t d = 0; d < s.value_size; ++d) {
            dp += dout[d] * row(x.v, j, s.value_size)[d];
            row(x.dv, j, s.value_size)[d] += p * dout[d];
          }
          const T ds = p * (dp - delta) * scale;
          for (std::int64_t d = 0; d < s.key_size; ++d) {
            dq[d] += ds * row(x.k, j, s.key_size)[d];
            row(x.dk, j, s.key_size)[d] += ds * q[d];
          }
        }
      }
}

// Memory on a cache line, poisoned, as the arena gives it.
class Aligned {
 public:
  explicit Aligned(std::size_t bytes) : memory_(bytes + 64, std::byte{0xFF}) {}
  void* data() { return reinterpret_cast<void*>((reinterpret_cast<std::uintptr_t>(memory_.data()) + 63) / 64 * 64); }

 private:
  std::vector<std::byte> memory_;
};

template <class T>
View rows_view(std::vector<T>& x, const AttentionShape& s, std::int64_t size) {
  View v;
  v.data = x.data();
  v.dtype = DtypeOf<T>::value;
  v.rank = 4;
  const std::int64_t sizes[] = {s.batch, s.n, s.heads, size};
  const std::int64_t strides[] = {s.n * s.heads * size, s.heads * size, size, 1};
  std::copy_n(sizes, 4, v.size);
  std::copy_n(strides, 4, v.stride);
  return v;
}

template <class T>
View lse_view(std::vector<T>& x, const AttentionShape& s) {
  View v;
  v.data = x.data();
  v.dtype = DtypeOf<T>::value;
  v.rank = 3;
  const std::int64_t sizes[] = {s.batch, s.heads, s.n};
  const std::int64_t strides[] = {s.heads * s.n, s.n, 1};
  std::copy_n(sizes, 3, v.size);
  std::copy_n(strides, 3, v.stride);
  return v;
}

template <class T>
void run_forward(const AttentionPlan& plan, const AttentionShape& s, AttentionData<T>& x) {
  AttentionArgs args{&plan,
                     rows_view(x.q, s, s.key_size),
                     rows_view(x.k, s, s.key_size),
                     rows_view(x.v, s, s.value_size),
                     rows_view(x.o, s, s.value_size),
                     lse_view(x.lse, s),
                     s.scale(),
                     nullptr};
  Aligned workspace(cpu::attention_workspace_bytes(args));
  args.workspace = workspace.data();
  cpu::attention(args, {});
}

template <class T>
void run_backward(const AttentionPlan& plan, const AttentionShape& s, AttentionData<T>& x) {
  AttentionBackwardArgs args{&plan,
                             rows_view(x.q, s, s.key_size),
                             rows_view(x.k, s, s.key_size),
                             rows_view(x.v, s, s.value_size),
                             rows_view(x.o, s, s.value_size),
                             lse_view(x.lse, s),
                             rows_view(x.dout, s, s.value_size),
                             rows_view(x.dq, s, s.key_size),
                             rows_view(x.dk, s, s.key_size),
                             rows_view(x.dv, s, s.value_size),
                             s.scale(),
                             nullptr};
  Aligned workspace(cpu::attention_workspace_bytes(args));
  args.workspace = workspace.data();
  cpu::attention_backward(args, {});
}

// Length of a - b, relative to that of b or, where b is nearly zero by cancellation, to 1. Equal infinities are equal.
template <class T>
double error_of(const std::vector<T>& a, const std::vector<double>& b) {
  double difference = 0, size = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (static_cast<double>(a[i]) == b[i]) {
      size += std::isinf(b[i]) ? 0 : b[i] * b[i];
      continue;
    }
    difference += (static_cast<double>(a[i]) - b[i]) * (static_cast<double>(a[i]) - b[i]);
    size += b[i] * b[i];
  }
  return difference == 0 ? 0 : std::sqrt(difference / std::max(size, 1.0));  // NaN stays NaN
}

class Threads {
 public:
  explicit Threads(int count) : before_(omp_get_max_threads()) { omp_set_num_threads(count); }
  ~Threads() { omp_set_num_threads(before_); }

 private:
  int before_;
};

}  // namespace longstride::kernels
