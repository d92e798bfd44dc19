// One draw by one block, for vocabularies of any size: thread t has the ids [t each, (t + 1) each). Sums are made in
// one order, so that a draw is the same whatever else runs.
#pragma once
#include "kernels/base/block_sum.cuh"
#include "kernels/draw/draw.cuh"

namespace longstride::kernels::cuda {

struct WideDraw {
  static constexpr int threads = 256, warps = threads / 32;

  const float* logits;
  int vocabulary;

  // Larger for likelier ids, and among equals for smaller ones; no two are equal.
  __device__ __forceinline__ unsigned long long rank(int v) const {
    const float logit = logits[v] + 0.0f;  // -0 becomes 0
    unsigned bits;
    memcpy(&bits, &logit, sizeof bits);
    const unsigned order = (bits >> 31) != 0 ? ~bits : bits | 0x80000000u;
    return (static_cast<unsigned long long>(order) << 16) | static_cast<unsigned>(65535 - v);
  }
};

// The sum of f(v) over this block's ids with a rank of at least `least`.
template <class T, class F>
__device__ __forceinline__ T sum_from(const WideDraw& d, unsigned long long least, F f) {
  T mine = 0;
  for (int v = static_cast<int>(threadIdx.x); v < d.vocabulary; v += WideDraw::threads)
    if (d.rank(v) >= least) mine += f(v);
  return of_block<WideDraw::warps>(mine, Sum<T>{});
}

// The largest rank with enough(rank), which holds for all smaller ones if it holds for one; 0: for none.
template <class Enough>
__device__ __forceinline__ unsigned long long largest_rank(Enough enough) {
  unsigned long long found = 0;
  for (int bit = 47; bit >= 0; --bit)
    if (enough(found | 1ull << bit)) found |= 1ull << bit;
  return found;
}

// As draw_by_warp.
static __device__ __noinline__ Draw draw_by_block(const WideDraw d, const Sampling& s, double uniform, int given) {
  __shared__ double before[WideDraw::threads];
  const int thread = static_cast<int>(threadIdx.x);
  unsigned long long mine_best = 0;
  for (int v = thread; v < d.vocabulary; v += WideDraw::threads)
    mine_best = Larger<unsigned long long>{}(mine_best, d.rank(v));
  const unsigned long long best = of_block<WideDraw::warps>(mine_best, Larger<unsigned long long>{});
  const int likeliest = 65535 - static_cast<int>(best & 65535);
  const float most = d.logits[likeliest];
  Draw out{given < 0 ? likeliest : given, 0};
  if (given < 0 && s.temperature > 0) {
    const auto weight = [&](int v) {
      return exp((static_cast<double>(d.logits[v]) - static_cast<double>(most)) / s.temperature);
    };
    unsigned long long least = 0;
    if (s.top_k > 0 && s.top_k < d.vocabulary)
      least = largest_rank(
          [&](unsigned long long rank) { return sum_from<int>(d, rank, [](int) { return 1; }) >= s.top_k; });
    if (s.top_p < 1) {
      const double wanted = s.top_p * sum_from<double>(d, least, weight);
      const unsigned long long enough = largest_rank(
          [&](unsigned long long rank) { return sum_from<double>(d, rank > least ? rank : least, weight) >= wanted; });
      least = enough > least ? enough : least;
    }
    const int each = (d.vocabulary + WideDraw::threads - 1) / WideDraw::threads;
    const int begin = thread * each, end = begin + each < d.vocabulary ? begin + each : d.vocabulary;
    double mine = 0;
    for (int v = begin; v < end; ++v) mine += d.rank(v) >= least ? weight(v) : 0.0;
    before[thread] = mine;
    __syncthreads();
    double all = 0, earlier = 0;
    for (int t = 0; t < WideDraw::threads; ++t) {
      if (t == thread) earlier = all;
      all += before[t];
    }
    double left = uniform * all - earlier;
    int found = d.vocabulary;
    for (int v = begin; v < end && left >= 0; ++v) {
      left -= d.rank(v) >= least ? weight(v) : 0.0;
      if (left < 0) found = v;
    }
    found = of_block<WideDraw::warps>(found, Smaller<int>{});
    if (found < d.vocabulary) out.byte = found;  // else rounding left none: the likeliest
  }
  const float sum = sum_from<float>(d, 0, [&](int v) { return expf(d.logits[v] - most); });
  out.log_probability = d.logits[out.byte] - most - logf(sum);
  return out;
}

}  // namespace longstride::kernels::cuda
