// The online softmax of a warp's score tile (the accumulator layout of kernels/gpu/fragment.cuh).
#pragma once
#include <cmath>

#include "kernels/base/approximate.cuh"
#include "kernels/base/cuda_launch.cuh"

namespace longstride::kernels::cuda::portable {

// A lane's state of the softmax of its two rows, with scores in base 2.
struct Softmax {
  float top[2] = {-INFINITY, -INFINITY};  // largest score
  float sum[2] = {0, 0};                  // this lane's share of the denominator, relative to top

  // Turns scores into probabilities relative to the largest so far, and rescales `acc` to it. weigh(j, e) is what the
  // exponential of an element is multiplied by.
  template <int Scores, int Values, class F>
  __device__ void add(float (&s)[Scores][4], float (&acc)[Values][4], F&& weigh) {
#pragma unroll
    for (int upper = 0; upper < 2; ++upper) {
      float largest = top[upper];
#pragma unroll
      for (int j = 0; j < Scores; ++j) largest = fmaxf(largest, fmaxf(s[j][2 * upper], s[j][2 * upper + 1]));
      largest = fmaxf(largest, __shfl_xor_sync(0xFFFFFFFFu, largest, 1));
      largest = fmaxf(largest, __shfl_xor_sync(0xFFFFFFFFu, largest, 2));
      const float base = largest == -INFINITY ? 0.0f : largest;  // -infinity minus itself is NaN
      const float shrink = exp2_approx(top[upper] - base);
      top[upper] = largest;
      float share = 0;
#pragma unroll
      for (int j = 0; j < Scores; ++j)
#pragma unroll
        for (int e = 2 * upper; e < 2 * upper + 2; ++e) share += s[j][e] = weigh(j, e) * exp2_approx(s[j][e] - base);
      sum[upper] = sum[upper] * shrink + share;
#pragma unroll
      for (int j = 0; j < Values; ++j)
#pragma unroll
        for (int e = 2 * upper; e < 2 * upper + 2; ++e) acc[j][e] *= shrink;
    }
  }
};

}  // namespace longstride::kernels::cuda::portable
