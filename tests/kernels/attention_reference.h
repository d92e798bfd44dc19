// Attention on the CPU, and data for comparing it with its definition (tests/support/dense_attention.h).
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
#include "tests/support/dense_attention.h"

namespace longstride::kernels {

// Layout (batch, rows, heads, size), contiguous.
template <class T>
struct AttentionData {
  std::vector<T> q, k, v, dout;       // given
  std::vector<T> o, lse, dq, dk, dv;  // computed; poisoned beforehand
  explicit AttentionData(const AttentionShape& s) {
    const AttentionInput in(s, Dtype::f32);  // so that f32 and f64 see the same numbers
    for (const auto& [to, from] :
         {std::pair{&q, &in.q}, std::pair{&k, &in.k}, std::pair{&v, &in.v}, std::pair{&dout, &in.dout}})
      to->assign(from->begin(), from->end());
    const T poison = std::numeric_limits<T>::quiet_NaN();
    o.assign(dout.size(), poison);
    dq.assign(q.size(), poison);
    dk.assign(k.size(), poison);
    dv.assign(v.size(), poison);
    lse.assign(static_cast<std::size_t>(s.rows()), poison);
  }
};

// Forward and backward in T's arithmetic, with the dense computation.
template <class T>
void reference_attention(const PatternConfig& pattern, std::int64_t layer, const AttentionShape& s,
                         AttentionData<T>& x) {
  AttentionInput in(s, Dtype::f32);
  for (const auto& [to, from] :
       {std::pair{&in.q, &x.q}, std::pair{&in.k, &x.k}, std::pair{&in.v, &x.v}, std::pair{&in.dout, &x.dout}})
    to->assign(from->begin(), from->end());
  const AttentionResult result = dense_attention<T>(in, masks_of(pattern, s.heads, layer, s.n, s.n_q()), Dtype::f64);
  for (const auto& [to, from] :
       {std::pair{&x.o, &result.o}, std::pair{&x.lse, &result.lse}, std::pair{&x.dq, &result.dq},
        std::pair{&x.dk, &result.dk}, std::pair{&x.dv, &result.dv}})
    to->assign(from->begin(), from->end());
}

// Memory aligned to a cache line, as the arena provides it, and poisoned.
class Aligned {
 public:
  explicit Aligned(std::size_t bytes) : memory_(bytes + 64, std::byte{0xFF}) {}
  void* data() { return reinterpret_cast<void*>((reinterpret_cast<std::uintptr_t>(memory_.data()) + 63) / 64 * 64); }

 private:
  std::vector<std::byte> memory_;
};

template <class T>
Tensor rows_view(std::vector<T>& x, const AttentionShape& s, std::int64_t size) {
  return {x.data(), DtypeOf<T>::value, {s.batch, s.n, s.heads_of_keys(), size}};
}

template <class T>
Tensor query_rows_view(std::vector<T>& x, const AttentionShape& s, std::int64_t size) {
  return {x.data(), DtypeOf<T>::value, {s.batch, s.n_q(), s.heads, size}};
}

template <class T>
Tensor lse_view(std::vector<T>& x, const AttentionShape& s) {
  return {x.data(), DtypeOf<T>::value, {s.batch, s.heads, s.n_q()}};
}

// With the scratch that the call asks for.
template <class Args, class F>
void run_checked(Args args, F&& run) {
  args.check(Device::cpu);
  const Tensor scratch = args.scratch_on(Device::cpu);
  Aligned memory(scratch.bytes());
  args.scratch = Tensor(memory.data(), scratch.dtype(), scratch.shape());
  run(args);
}

template <class T>
void run_forward(const AttentionPlan& plan, const AttentionShape& s, AttentionData<T>& x, const RowBounds& bounds = {},
                 const BlockLists& lists = {}, const Labels& labels = {}, const Tensor& sink = {}) {
  const AttentionArgs args{.plan = &plan,
                           .q = query_rows_view(x.q, s, s.key_size),
                           .k = rows_view(x.k, s, s.key_size),
                           .v = rows_view(x.v, s, s.value_size),
                           .o = query_rows_view(x.o, s, s.value_size),
                           .lse = lse_view(x.lse, s),
                           .scale = s.scale(),
                           .bounds = bounds,
                           .lists = lists,
                           .labels = labels,
                           .sink = sink};
  run_checked(args, [](const AttentionArgs& all) { cpu::attention(all, {}); });
}

template <class T>
void run_backward(const AttentionPlan& plan, const AttentionShape& s, AttentionData<T>& x, const RowBounds& bounds = {},
                  const BlockLists& lists = {}, const Labels& labels = {}, const Tensor& dtable = {},
                  const Tensor& sink = {}, const Tensor& dsink = {}) {
  const AttentionBackwardArgs args{.plan = &plan,
                                   .q = query_rows_view(x.q, s, s.key_size),
                                   .k = rows_view(x.k, s, s.key_size),
                                   .v = rows_view(x.v, s, s.value_size),
                                   .o = query_rows_view(x.o, s, s.value_size),
                                   .lse = lse_view(x.lse, s),
                                   .dout = query_rows_view(x.dout, s, s.value_size),
                                   .dq = query_rows_view(x.dq, s, s.key_size),
                                   .dk = rows_view(x.dk, s, s.key_size),
                                   .dv = rows_view(x.dv, s, s.value_size),
                                   .scale = s.scale(),
                                   .bounds = bounds,
                                   .lists = lists,
                                   .labels = labels,
                                   .dtable = dtable,
                                   .sink = sink,
                                   .dsink = dsink};
  run_checked(args, [](const AttentionBackwardArgs& all) { cpu::attention_backward(all, {}); });
}

// The norm of a - b, relative to that of b or, if b nearly cancels to zero, to 1. Equal infinities are equal.
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
