// One draw by one warp. The vocabulary is spread over the lanes, eight neighbours each.
#pragma once
#include "kernels/base/vector.cuh"
#include "kernels/draw/draw.h"

namespace longstride::kernels::cuda {

struct Draw {
  static constexpr int each = 8;  // logits of a lane
  static constexpr int most = 32 * each;

  int byte;
  float log_probability;
};

__device__ __forceinline__ double warp_sum(double x) {
#pragma unroll
  for (int offset = 16; offset > 0; offset /= 2) x += __shfl_xor_sync(0xFFFFFFFFu, x, offset);
  return x;
}

// The logit of byte v, which lane v / 8 holds.
__device__ __forceinline__ float logit_of(const float (&x)[Draw::each], int v) {
  float mine = 0;
#pragma unroll
  for (int k = 0; k < Draw::each; ++k)
    if (k == v % Draw::each) mine = x[k];
  return __shfl_sync(0xFFFFFFFFu, mine, v / Draw::each);
}

// Zeroes the weights of the bytes that top_k and top_p exclude. x is -infinity beyond the vocabulary.
static __device__ __noinline__ void leave_out(double (&weight)[Draw::each], const float (&x)[Draw::each],
                                              const Sampling& s) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  int rank[Draw::each] = {};
  double better[Draw::each] = {}, total = 0;
  for (int pass = 0; pass < 2; ++pass) {
    for (int from = 0; from < 32; ++from)
#pragma unroll
      for (int j = 0; j < Draw::each; ++j) {
        const float other = __shfl_sync(0xFFFFFFFFu, x[j], from);
        const double mass = __shfl_sync(0xFFFFFFFFu, weight[j], from);
#pragma unroll
        for (int k = 0; k < Draw::each; ++k) {
          const bool first = other > x[k] || (other == x[k] && from * Draw::each + j < lane * Draw::each + k);
          if (pass == 0) rank[k] += first ? 1 : 0;
          if (pass == 1) better[k] += first ? mass : 0.0;
        }
      }
    if (pass == 1) break;
#pragma unroll
    for (int k = 0; k < Draw::each; ++k) {
      if (s.top_k > 0 && rank[k] >= s.top_k) weight[k] = 0;
      total += weight[k];
    }
    total = warp_sum(total);
  }
#pragma unroll
  for (int k = 0; k < Draw::each; ++k)
    if (rank[k] > 0 && s.top_p < 1 && better[k] >= s.top_p * total) weight[k] = 0;
}

// x: this lane's logits, -infinity beyond the vocabulary. Not inlined, because these functions would take registers
// from the kernels around them. `given`: the byte of a prompt, or -1 to draw. Every lane returns the same.
static __device__ __noinline__ Draw draw_by_warp(const float (&x)[Draw::each], const Sampling& s, double uniform,
                                                 int given, bool with_log) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  float most = -INFINITY;
#pragma unroll
  for (int k = 0; k < Draw::each; ++k) most = fmaxf(most, x[k]);
  most = warp_max(most);
  Draw out{given, 0};
  if (given < 0) {
    int best = Draw::most;
#pragma unroll
    for (int k = Draw::each - 1; k >= 0; --k)
      if (x[k] == most) best = lane * Draw::each + k;
    best = __reduce_min_sync(0xFFFFFFFFu, best);
    out.byte = best;
    if (s.temperature > 0) {
      double weight[Draw::each], mine = 0;
#pragma unroll
      for (int k = 0; k < Draw::each; ++k) {
        const double below = static_cast<double>(x[k]) - static_cast<double>(most);
        weight[k] = x[k] == -INFINITY ? 0.0 : exp(s.temperature == 1 ? below : below / s.temperature);  // slow
      }
      if (s.top_k > 0 || s.top_p < 1) leave_out(weight, x, s);
#pragma unroll
      for (int k = 0; k < Draw::each; ++k) mine += weight[k];
      double upto = mine;  // over this lane and all lanes before it
#pragma unroll
      for (int offset = 1; offset < 32; offset *= 2) {
        const double before = __shfl_up_sync(0xFFFFFFFFu, upto, offset);
        if (lane >= offset) upto += before;
      }
      double left = uniform * __shfl_sync(0xFFFFFFFFu, upto, 31) - (upto - mine);
      int found = Draw::most;
#pragma unroll
      for (int k = 0; k < Draw::each; ++k) {
        left -= weight[k];
        if (left < 0 && weight[k] > 0 && found == Draw::most) found = lane * Draw::each + k;
      }
      found = __reduce_min_sync(0xFFFFFFFFu, found);
      if (found < Draw::most) out.byte = found;  // fails only through rounding
    }
  }
  if (with_log) {
    float sum = 0;
#pragma unroll
    for (int k = 0; k < Draw::each; ++k) sum += expf(x[k] - most);
    out.log_probability = logit_of(x, out.byte) - most - logf(warp_sum(sum));
  }
  return out;
}

}  // namespace longstride::kernels::cuda
