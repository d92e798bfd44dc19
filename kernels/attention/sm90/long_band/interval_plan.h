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
  KeyRotation rotation;
  std::int64_t bounds = 0;  // sequences times heads with bounds of their own
  bool by_documents = false;

  // As many classes side by side as keep the blocks that work on one of them few: those wait for each other where many
  // key tiles have the same last query, at the end of a document. Their sums need not stay in the second-level cache.
  static constexpr std::size_t most_sums = 4 * turn_cache_bytes;
  void lay_out() {
    const LongBandOrder order = turns.order();
    turns.ring.tiles = turns.ring.ring = tiles_in(turns.band.n, band_rows);
    turns.ring.most_turns = static_cast<std::uint32_t>(order.key_tiles() + 1);
    turns.ring.lanes = 1;
    const auto room = std::max<std::int64_t>(static_cast<std::int64_t>(most_sums / turns.sums_bytes()), 1);
    const std::int64_t lanes =
        std::clamp<std::int64_t>(turns.classes, 1, std::min<std::int64_t>(room, long_band_blocks));
    turns.divide((turns.classes + lanes - 1) / lanes);
  }

  // Rows of bounds; without any there is one for all.
  std::int32_t rows() const { return static_cast<std::int32_t>(std::max<std::int64_t>(bounds, 1)); }
  // Behind the sums and counters: tiles that see each other, then bounds as the keys see them.
  std::size_t tiles_at() const { return (turns.scratch_bytes() + 15) / 16 * 16; }
  std::size_t bounds_at() const {
    const auto tiles = static_cast<std::size_t>(turns.ring.tiles + turns.order().key_tiles());
    return tiles_at() + 2 * sizeof(std::int32_t) * static_cast<std::size_t>(rows()) * tiles;
  }
  std::size_t scratch_bytes() const {
    return bounds_at() + (by_documents ? 0 : bounds_from_keys_bytes(bounds, turns.band.n));
  }
};

}  // namespace longstride::kernels::cuda::sm90
