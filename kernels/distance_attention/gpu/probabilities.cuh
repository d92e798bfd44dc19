// From scores to probabilities, and from their gradients to those of the scores, in a warp's registers.
#pragma once
#include "kernels/distance_attention/gpu/tile.cuh"

namespace longstride::kernels::cuda::distance {

// The pairs of a tile of `rows` queries from entry `query` on and a tile of keys from entry `key` on.
struct EntryPairs {
  std::int32_t base, key;  // m of row and column 0
  bool ramped;             // some have a weight below 1

  __device__ EntryPairs(const Head& head, std::int32_t query, std::int32_t first_key, std::int32_t rows)
      : base(query - first_key), key(first_key) {
    ramped = head.ramp.slope != 0 && head.ramp.weight((base + rows - 1) * head.step) < 1;
  }
  // The weight of element e of block j of the warp whose first row is `row`.
  __device__ float weight(const Head& head, int row, int j, int e) const {
    return ramped ? head.ramp.weight((base + row + fragment_row(e) - fragment_column(j, e)) * head.step) : 1.0f;
  }
};

// A lane's two rows of sixteen queries: what KeptProbabilities draws from.
struct DrawnRows {
  std::uint64_t of[2];

  template <class F>
  __device__ DrawnRows(const Call& call, const Head& head, F&& query_of_row) {
#pragma unroll
    for (int upper = 0; upper < 2; ++upper)
      of[upper] = call.kept.row(head.sequence, head.head, query_of_row(fragment_row(2 * upper)));
  }
};

// Calls f(j, e, keep factor) for all elements; two neighbouring keys mostly share what is drawn.
template <class F>
__device__ inline void each_kept(const Call& call, const ResidueClass& in, const DrawnRows& drawn,
                                 std::int32_t first_key, F&& f) {
  const std::uint32_t step_now = call.kept.step_word();
#pragma unroll
  for (int j = 0; j < scores; ++j)
#pragma unroll
    for (int e = 0; e < 4; e += 2) {
      const std::int32_t key = in.position(first_key + fragment_column(j, e)), next = key + in.step;
      const std::uint64_t row = drawn.of[e / 2];
      const Philox4 first = call.kept.draw(row, key, step_now);
      const Philox4 second = next / 4 == key / 4 ? first : call.kept.draw(row, next, step_now);
      f(j, e, call.kept.keeps(first, key) ? call.keep_scale : 0.0f);
      f(j, e + 1, call.kept.keeps(second, next) ? call.keep_scale : 0.0f);
    }
}

// Turns scores `s` of the warp whose first row is `row` into P K / (1 - p) and dP `dp` into dS; returns this lane's
// share of the span's gradient. drawn() are its DrawnRows; lse is in base 2.
template <class F>
__device__ inline float to_score_gradients(const Call& call, const Head& head, const ResidueClass& in,
                                           const EntryPairs& pairs, int row, F&& drawn, const float (&lse)[2],
                                           const float (&delta)[2], bool masked, const portable::TwoIntervals& seen,
                                           float (&s)[scores][4], float (&dp)[scores][4]) {
  const float scale = call.scale * log2_e;
  float span = 0;
  const auto turn = [&](int j, int e, float keep) {
    const std::int32_t key = pairs.key + fragment_column(j, e);
    const float weight = pairs.weight(head, row, j, e);
    const bool visible = (!masked || (key >= seen.low[e / 2] && key < seen.high[e / 2])) && weight > 0;
    const float unweighted = visible ? exp2_approx(fmaf(s[j][e], scale, -lse[e / 2])) : 0.0f;
    const float along = unweighted * (dp[j][e] * keep - delta[e / 2]);
    if (weight < 1) span += along;
    dp[j][e] = weight * along;
    s[j][e] = weight * unweighted * keep;
  };
  if (call.kept.limit > 0) {
    each_kept(call, in, drawn(), pairs.key, turn);
  } else {
#pragma unroll
    for (int j = 0; j < scores; ++j)
#pragma unroll
      for (int e = 0; e < 4; ++e) turn(j, e, 1.0f);
  }
  return span;
}

}  // namespace longstride::kernels::cuda::distance
