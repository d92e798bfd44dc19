// From scores to gradients of scores, in a warpgroup's registers; and stores of the gradients of keys.
#pragma once
#include "kernels/distance_attention/sm90/tiles.cuh"

namespace longstride::kernels::cuda::distance::sm90 {

// A lane's two rows of query tile t: lse in base 2, infinity where there is no query or no key, so that P = 0.
struct Statistics {
  float lse[2], delta[2];

  __device__ Statistics(const Call& call, const Place& p, std::int32_t t) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const std::int32_t entry = p.first_query(t) + lane_row() + 8 * h;
      const bool there = entry < p.in.entries;
      const std::int64_t at = p.head.row(call, there ? p.query(call, entry) : 0);
      const float found = there ? call.lse[at] : -INFINITY;
      lse[h] = found > -INFINITY ? found * log2_e : INFINITY;
      delta[h] = there ? call.delta[at] : 0.0f;
    }
  }
};

// Turns scores into P, with its weight, 0 where a pair is not visible.
template <bool Span>
__device__ inline void to_probabilities(Accumulator& s, float rate, const Place& p, const TilePairs& pairs,
                                        const Statistics& statistics) {
  if (pairs.masked) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const Interval seen = visible_columns(p, pairs, lane_row() + 8 * h);
      const std::int32_t begin = seen.begin - lane_column(), end = seen.end - lane_column();
#pragma unroll
      for (int j = 0; j < 8; ++j)
#pragma unroll
        for (int e = 0; e < 2; ++e)
          if (8 * j + e < begin || 8 * j + e >= end) s[element_at(j, h, e)] = -INFINITY;
    }
  }
  if (Span && pairs.ramped) add_log_weights(s, rate, p.head, pairs);
#pragma unroll
  for (int i = 0; i < 32; ++i) s[i] = exp2_approx(fmaf(s[i], rate, -statistics.lse[i / 2 % 2]));
}

// Turns dP into dS.
__device__ inline void to_gradients(Accumulator& dp, const Accumulator& p, const Statistics& statistics) {
#pragma unroll
  for (int i = 0; i < 32; ++i) dp[i] = p[i] * (dp[i] - statistics.delta[i / 2 % 2]);
}

// A lane's share of the gradient of the span, but for its factor: dS over their weights, of the pairs on the ramp.
__device__ inline float along_ramp(const Accumulator& ds, const Head& head, const TilePairs& pairs) {
  float sum = 0;
  each_weight(head, pairs, [&](int i, float weight) {
    if (weight > 0 && weight < 1) sum += __fdividef(ds[i], weight);
  });
  return sum;
}

// Stores the gradients of 64 keys of a class, from entry `first` on.
template <class T>
__device__ inline void store_key_gradients(const Call& call, const Place& p, std::int32_t first, const Accumulator& dk,
                                           const Accumulator& dv) {
  const std::int32_t begin = first + lane_row();
  const auto row = [&](const HeadMatrix& m, int h) -> T* {
    return begin + 8 * h < p.in.entries ? row_of<T>(m, p.head, p.in.position(begin + 8 * h)) : nullptr;
  };
  store_rows<T>(dk, {call.scale, call.scale}, call.size, [&](int h) { return row(call.dk, h); });
  store_rows<T>(dv, {1, 1}, call.value_size, [&](int h) { return row(call.dv, h); });
}

}  // namespace longstride::kernels::cuda::distance::sm90
