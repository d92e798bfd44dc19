// The tasks and the memory of the kernels for long bands. choice.cpp finds the plan of an attention.
#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "kernels/attention/sm90/band/band_plan.h"
#include "kernels/attention/sm90/long_band/long_band_order.h"

namespace longstride::kernels::cuda::sm90 {

// Multiprocessors of an H100 or H200, one block each. With others the results are the same.
inline constexpr std::int32_t long_band_blocks = 132;
inline constexpr std::int32_t long_band_head = 64;  // heads of short classes are padded to this
// Classes of no more entries keep dQ in shared memory.
inline constexpr std::int32_t short_class = 512, short_class_tiles = short_class / band_rows;
// The sums of those side by side, at least 16 if there are, should stay in the second-level cache.
inline constexpr std::size_t turn_cache_bytes = std::size_t{52} << 20;
inline constexpr std::int32_t least_lanes = 16;

struct LongBandPlan {
  BandPlan band;
  std::int64_t classes = 0;  // over all heads and sequences
  bool in_turns = false;     // dQ is summed in global memory; otherwise a block has a class
  // In turns:
  std::int32_t head = long_band_head;  // heads are padded to this: 32, 64 or 128
  TurnRing ring;
  std::int32_t groups = 0;

  // Groups of equal size, as a small last one would keep few blocks busy.
  void divide(std::int64_t into) {
    groups = static_cast<std::int32_t>(std::max<std::int64_t>(into, 1));
    ring.lanes = static_cast<std::int32_t>((classes + groups - 1) / groups);
  }

  LongBandOrder order() const { return {band.shape, band.set.length, key_strips(head)}; }
  std::int64_t tasks() const { return in_turns ? classes * order().key_tiles() : classes; }
  std::size_t slots() const { return static_cast<std::size_t>(ring.lanes) * static_cast<std::size_t>(ring.ring); }
  std::size_t sums_bytes() const { return slots() * band_rows * static_cast<std::size_t>(head) * sizeof(float); }
  // A counter per slot, and the number of tasks taken.
  std::size_t counter_bytes() const { return (slots() + 1) * sizeof(std::uint32_t); }
  std::size_t scratch_bytes() const { return in_turns ? sums_bytes() + counter_bytes() : 0; }
};

// Chooses lanes and ring. Blocks should not wait: a group has several tasks per block, and a slot is not used again
// before blocks are far beyond.
inline void lay_out_turns(LongBandPlan& plan) {
  const LongBandOrder order = plan.order();
  const std::int32_t tiles = tiles_in(plan.band.set.length, band_rows), key_tiles = order.key_tiles();
  plan.ring.tiles = tiles;
  plan.ring.most_turns = static_cast<std::uint32_t>(plan.band.reach / order.strips + 2);
  constexpr std::int32_t tasks_per_block = 4;
  std::int64_t lanes = std::max<std::int64_t>(least_lanes, tiles_in(tasks_per_block * long_band_blocks, key_tiles));
  lanes = std::max<std::int64_t>(std::min(lanes, plan.classes), 1);
  for (;; --lanes) {
    const auto in_flight = static_cast<std::int32_t>((long_band_blocks + lanes - 1) / lanes);  // key tiles
    plan.ring.ring = std::min(tiles, plan.band.reach + order.strips + 1 + 2 * order.strips * in_flight + 8);
    plan.ring.lanes = static_cast<std::int32_t>(lanes);
    if (lanes == 1 || plan.sums_bytes() <= turn_cache_bytes) break;
  }
  plan.divide((plan.classes + lanes - 1) / lanes);
}

}  // namespace longstride::kernels::cuda::sm90
