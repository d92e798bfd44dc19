// The tasks and the memory of turns over intervals of keys (interval_order.h).
#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "kernels/attention/bounds_from_keys.h"
#include "kernels/attention/sm90/long_band/interval_order.h"
#include "kernels/attention/sm90/long_band/long_band_plan.h"

namespace longstride::kernels::cuda::sm90 {

struct IntervalPlan {
  LongBandPlan turns;  // the band of all positions, in turns
  QueryIntervals intervals;
  std::int64_t bounds = 0;  // sequences times heads with bounds of their own
  bool by_documents = false;

  // Rows of key tiles per query tile; without bounds there is one for all.
  std::int32_t rows() const { return static_cast<std::int32_t>(std::max<std::int64_t>(bounds, 1)); }
  // Behind the sums and counters: key tiles, then bounds as the keys see them.
  std::size_t tiles_at() const { return (turns.scratch_bytes() + 15) / 16 * 16; }
  std::size_t bounds_at() const {
    return tiles_at() +
           2 * sizeof(std::int32_t) * static_cast<std::size_t>(rows()) * static_cast<std::size_t>(turns.ring.tiles);
  }
  std::size_t scratch_bytes() const {
    return bounds_at() + (by_documents ? 0 : bounds_from_keys_bytes(bounds, turns.band.n));
  }
};

}  // namespace longstride::kernels::cuda::sm90
