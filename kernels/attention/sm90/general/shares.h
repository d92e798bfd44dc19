// Where a few rows see many rows, or are seen by many, blocks share what each of them reads: a tile has `count` blocks,
// each with an interval of the others' rows, and its results are those of all in a fixed order.
#pragma once
#include <algorithm>
#include <cstdint>

#include "kernels/attention/pattern/plan.h"
#include "kernels/attention/sm90/general/pass_shape.h"

namespace longstride::kernels::cuda::sm90 {

// tiles: of all heads and sequences. others: rows that each of their rows may meet.
constexpr std::int32_t shares_of(std::int64_t tiles, std::int64_t others) {
  constexpr std::int64_t blocks = 132, least_rows = 512;
  return static_cast<std::int32_t>(std::clamp<std::int64_t>(std::min(blocks / tiles, others / least_rows), 1, 64));
}

// True if blocks may share the queries of a part's keys: in a call with other queries than keys, or if these are the
// few first ones of a pass that every head has.
inline bool may_share_queries(const AttentionPlan& plan, const Part& part) {
  if (plan.queries != plan.n) return plan.parts.size() == 1;
  const RowSet& keys = part.keys;
  return plan.passes.size() == 1 && keys.base == 0 && keys.length < plan.n && keys.length <= keys.run;
}

// A kernel's sequences are then `sequences` a share, share by share.
struct Shares {
  std::int32_t count = 1, rows = 0;  // rows of a share
  Divisor sequences;

  Shares() = default;
  Shares(std::int32_t shares, std::int64_t batch, std::int64_t others)
      : count(shares),
        rows(static_cast<std::int32_t>((others / shares + 63) / 64 * 64)),
        sequences(static_cast<std::int32_t>(batch)) {}
#ifdef __CUDACC__
  __device__ std::int32_t of(std::int32_t sequence) const { return sequences.quotient(sequence); }
  // The inputs'.
  __device__ std::int32_t input(std::int32_t sequence) const {
    return sequence - of(sequence) * static_cast<std::int32_t>(sequences.value);
  }
  __device__ Interval clamp(const Interval& seen, std::int32_t sequence) const {
    if (count == 1) return seen;
    const std::int32_t share = of(sequence), begin = share * rows;
    return {max(seen.begin, begin), share + 1 == count ? seen.end : min(seen.end, begin + rows)};
  }
#endif
};

}  // namespace longstride::kernels::cuda::sm90
