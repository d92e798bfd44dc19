// From scores to probabilities, and from their gradients to those of the scores, in a warp's registers.
#pragma once
#include "kernels/distance_attention/gpu/tile.cuh"

namespace longstride::kernels::cuda::distance {

// A lane's two rows of sixteen queries, from row `row` of query tile t on.
struct LaneRows {
  float lse[2], delta[2];  // lse in base 2; infinity where there is no query or no key, so that P = 0
  std::uint64_t drawn[2];  // drawn by KeptProbabilities

  __device__ LaneRows(const Call& call, const Place& p, std::int32_t t, int row) {
#pragma unroll
    for (int upper = 0; upper < 2; ++upper) {
      const std::int32_t entry = p.first_query(t) + row + fragment_row(2 * upper);
      const bool valid = p.is_query(entry);
      const std::int32_t i = valid ? p.query(call, entry) : 0;
      drawn[upper] = call.kept.row(p.head.sequence, p.head.head, i);
      lse[upper] = INFINITY;
      delta[upper] = 0;
      if (!valid || call.delta == nullptr) continue;
      const float found = call.lse[p.head.row(call, i)];
      if (found > -INFINITY) lse[upper] = found * log2_e;
      delta[upper] = call.delta[p.head.row(call, i)];
    }
  }
};

// Calls f(j, e, keep factor) for all elements; two neighbouring keys mostly share what is drawn.
template <class F>
__device__ inline void each_kept(const Call& call, const Place& p, const LaneRows& rows, std::int32_t s, F&& f) {
  const std::uint32_t step_now = call.kept.step_word();
#pragma unroll
  for (int j = 0; j < scores; ++j)
#pragma unroll
    for (int e = 0; e < 4; e += 2) {
      const std::int32_t key = p.in.position(s * tile_rows + fragment_column(j, e)), next = key + p.in.step;
      const std::uint64_t row = rows.drawn[e / 2];
      const Philox4 first = call.kept.draw(row, key, step_now);
      const Philox4 second = next / 4 == key / 4 ? first : call.kept.draw(row, next, step_now);
      f(j, e, call.kept.keeps(first, key) ? call.keep_scale : 0.0f);
      f(j, e + 1, call.kept.keeps(second, next) ? call.keep_scale : 0.0f);
    }
}

// A lane's state of the softmax of its two rows, with scores in base 2.
struct Softmax {
  float top[2] = {-INFINITY, -INFINITY};  // largest score
  float sum[2] = {0, 0};                  // this lane's share of the denominator, relative to top

  // Turns scores (-infinity where not visible) into exponentials relative to the largest so far, to which it rescales
  // `acc`; sums come with weigh().
  template <int Values>
  __device__ void exponentiate(float (&s)[scores][4], float (&acc)[Values][4]) {
#pragma unroll
    for (int upper = 0; upper < 2; ++upper) {
      float largest = top[upper];
#pragma unroll
      for (int j = 0; j < scores; ++j) largest = fmaxf(largest, fmaxf(s[j][2 * upper], s[j][2 * upper + 1]));
      largest = fmaxf(largest, __shfl_xor_sync(0xFFFFFFFFu, largest, 1));
      largest = fmaxf(largest, __shfl_xor_sync(0xFFFFFFFFu, largest, 2));
      const float base = largest == -INFINITY ? 0.0f : largest;  // -infinity minus itself is NaN
      const float shrink = exp2_approx(top[upper] - base);
      top[upper] = largest;
      sum[upper] *= shrink;
#pragma unroll
      for (int j = 0; j < scores; ++j)
#pragma unroll
        for (int e = 2 * upper; e < 2 * upper + 2; ++e) s[j][e] = exp2_approx(s[j][e] - base);
#pragma unroll
      for (int j = 0; j < Values; ++j)
#pragma unroll
        for (int e = 2 * upper; e < 2 * upper + 2; ++e) acc[j][e] *= shrink;
    }
  }
  // Adds what was exponentiated, times its weights, to the sums.
  __device__ void add(float (&s)[scores][4], const Head& head, const TilePairs& pairs, int row) {
#pragma unroll
    for (int j = 0; j < scores; ++j)
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        if (pairs.ramped) {
          const std::int32_t m = pairs.base + row + fragment_row(e) - fragment_column(j, e);
          s[j][e] *= head.ramp.weight(m * head.step);
        }
        sum[e / 2] += s[j][e];
      }
  }
  // Divides `acc` by the sums and calls f(row, lse) once for every row.
  template <int Values, class F>
  __device__ void finish(float (&acc)[Values][4], F&& f) const {
#pragma unroll
    for (int upper = 0; upper < 2; ++upper) {
      float total = sum[upper];
      total += __shfl_xor_sync(0xFFFFFFFFu, total, 1);
      total += __shfl_xor_sync(0xFFFFFFFFu, total, 2);
      const float share = total > 0 ? 1 / total : 0.0f;
#pragma unroll
      for (int j = 0; j < Values; ++j) {
        acc[j][2 * upper] *= share;
        acc[j][2 * upper + 1] *= share;
      }
      if (this_lane() % 4 == 0) f(fragment_row(2 * upper), total > 0 ? (top[upper] + log2f(total)) * ln_2 : -INFINITY);
    }
  }
};

// Scores times `scale`, in base 2; -infinity where not visible.
__device__ inline void scale_scores(float (&s)[scores][4], float scale, const Head& head, const TilePairs& pairs,
                                    int row) {
#pragma unroll
  for (int j = 0; j < scores; ++j)
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      const bool visible = !pairs.masked || pairs.visible(head, row + fragment_row(e), fragment_column(j, e));
      s[j][e] = visible ? s[j][e] * scale : -INFINITY;
    }
}

// Turns scores `s` into P K / (1 - p) and dP `dp` into dS; returns this lane's share of the span's gradient.
__device__ inline float to_score_gradients(const Call& call, const Place& p, const LaneRows& rows,
                                           const TilePairs& pairs, std::int32_t tile, float (&s)[scores][4],
                                           float (&dp)[scores][4]) {
  const float scale = call.scale * log2_e;
  float span = 0;
  const auto turn = [&](int j, int e, float keep) {
    const int r = warp_row() + fragment_row(e), c = fragment_column(j, e);
    const float weight = pairs.ramped ? p.head.ramp.weight((pairs.base + r - c) * p.head.step) : 1.0f;
    const bool visible = (!pairs.masked || pairs.visible(p.head, r, c)) && weight > 0;
    const float unweighted = visible ? exp2_approx(fmaf(s[j][e], scale, -rows.lse[e / 2])) : 0.0f;
    const float along = unweighted * (dp[j][e] * keep - rows.delta[e / 2]);
    if (weight < 1) span += along;
    dp[j][e] = weight * along;
    s[j][e] = weight * unweighted * keep;
  };
  if (call.kept.limit > 0) {
    each_kept(call, p, rows, tile, turn);
  } else {
#pragma unroll
    for (int j = 0; j < scores; ++j)
#pragma unroll
      for (int e = 0; e < 4; ++e) turn(j, e, 1.0f);
  }
  return span;
}

}  // namespace longstride::kernels::cuda::distance
