// Online softmax of the two query rows that a thread shares with its quad (the accumulator layout of fragment.cuh), in
// base 2: a score's weight is 2^(rate * score - top).
//
// top follows the largest score only when the score exceeds it by more than `slack`: weights up to 2^slack are equally
// exact, the denominator is relative to the same top, and the output rarely needs to be rescaled.
#pragma once
#include "kernels/attention/pattern/plan.h"
#include "kernels/attention/sm90/general/columns.cuh"
#include "kernels/base/approximate.cuh"
#include "kernels/gpu/fragment.cuh"
#include "kernels/gpu/lane.cuh"
#include "kernels/gpu/wgmma.cuh"

namespace longstride::kernels::cuda::sm90 {

class Softmax {
 public:
  static constexpr float slack = 8;

  __device__ explicit Softmax(float rate) : rate_(rate) {}

  // Resumes from a finished softmax with this lse (natural logarithm).
  __device__ void resume(int row, float lse) {
    top_[row] = lse * log2_e;
    sum_[row] = lse > -infinity() && threadIdx.x % 4 == 0 ? 1.0f : 0.0f;
  }

  // Sets scores outside the row's interval, counted in keys from the tile's first, to -infinity.
  template <int Count>
  __device__ static void mask(float (&s)[Count], const Interval (&allowed)[2]) {
    const std::int32_t column = 2 * (threadIdx.x % 4);
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const std::uint32_t bits = columns_below(allowed[r].end - column) & ~columns_below(allowed[r].begin - column);
#pragma unroll
      for (int i = 0; i < Count / 2; ++i)
        if (!(bits >> i & 1)) s[element_at(i / 2, r, i % 2)] = -infinity();
    }
  }

  // Turns scores into weights. Returns whether the accumulated rows must be multiplied by shrink(row); the result is
  // equal in all threads of a warp.
  template <int Count>
  __device__ bool weigh(float (&s)[Count]) {
    // Two chains of maxima per row, side by side, as each is a chain of latencies.
    float largest[2][2];
#pragma unroll
    for (int j = 0; j < Count / 4; ++j)
#pragma unroll
      for (int r = 0; r < 2; ++r)
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          const float x = s[element_at(j, r, e)];
          largest[r][e] = j == 0 ? x : fmaxf(largest[r][e], x);
        }
    float top_of[2];
#pragma unroll
    for (int r = 0; r < 2; ++r) top_of[r] = fmaxf(largest[r][0], largest[r][1]);
#pragma unroll
    for (int step = 1; step < 4; step *= 2)
#pragma unroll
      for (int r = 0; r < 2; ++r) top_of[r] = fmaxf(top_of[r], __shfl_xor_sync(~0u, top_of[r], step));
    // Each row by itself: if another's growth moved a row's reference, the row's bits would tell of keys it cannot see.
    bool grows[2];
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      seen_[r] = top_of[r] * rate_;
      grows[r] = seen_[r] > top_[r] + slack;
    }
    const bool grown = __any_sync(~0u, grows[0] || grows[1]);
    if (grown) {
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        const float top = grows[r] ? seen_[r] : top_[r];
        shrink_[r] = grows[r] ? exp2_approx(top_[r] - top) : 1.0f;
        top_[r] = top;
        sum_[r] *= shrink_[r];
      }
    }
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const float top = top_[r] > -infinity() ? top_[r] : 0.0f;
#pragma unroll
      for (int j = 0; j < Count / 4; ++j)
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          float& x = s[element_at(j, r, e)];
          x = exp2_approx(fmaf(x, rate_, -top));
          sum_[r] += x;
        }
    }
    // The sums are due here: behind the branch that rescales, the additions would not fill the exponentials' gaps.
    wgmma_hold(sum_);
    return grown;
  }

  __device__ float shrink(int row) const { return shrink_[row]; }

  // After the last weights: the factor for the accumulated rows, and the log of the denominator.
  struct Result {
    float factor, lse;
  };
  __device__ Result finish(int row) const {
    float sum = sum_[row];
    sum += __shfl_xor_sync(~0u, sum, 1);
    sum += __shfl_xor_sync(~0u, sum, 2);
    if (!(sum > 0)) return {0, -infinity()};
    return {__fdividef(1, sum), (top_[row] + __log2f(sum)) * (1 / log2_e)};
  }

 private:
  __device__ static constexpr float infinity() { return __builtin_huge_valf(); }

  float rate_;
  float top_[2] = {-infinity(), -infinity()}, sum_[2] = {0, 0};
  float seen_[2], shrink_[2];
};

}  // namespace longstride::kernels::cuda::sm90
