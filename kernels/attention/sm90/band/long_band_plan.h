// Which attentions are long bands, and how a long band is divided between blocks. Needs no CUDA: the planner asks for
// the scratch, which depends on shapes alone.
#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "kernels/attention/attention.h"
#include "kernels/attention/sm90/band/band_plan.h"
#include "kernels/attention/sm90/band/long_band_walk.h"

namespace longstride::kernels::cuda::sm90 {

// One block per multiprocessor of an H100 or H200. Others use as many blocks as they have, but not more, because each
// block has scratch.
inline constexpr std::int32_t long_band_blocks = 132;
// Heads of up to 64 whose sums of dK and dV for a tile of 128 keys, in f32, are this long.
inline constexpr std::int32_t long_band_head = 64;
inline constexpr std::size_t key_sums_bytes = std::size_t{2} * key_tile_rows * long_band_head * sizeof(float);
// Key tiles may be visited by this many chunks after their own; more would take too much scratch.
inline constexpr std::int32_t most_later_chunks = 2;
// The general kernels need no repeated work at the ends of runs and divide finer. For windows they take 1.15 times as
// long with 93% of the blocks busy (docs/notes/2026-11/kernels.md), so below this share they are as fast; for columns
// and dense attention, which take up to twice as long, they are not yet.
inline constexpr double least_busy = 0.8;

struct LongBandPlan {
  BandPlan band;
  std::int32_t run = 1, runs = 1;  // chunks per run, runs per segment
  std::int32_t slots = 0;          // key tiles whose sums a block keeps between visits
  double busy = 0;                 // share of the blocks' time that a perfect division would take

  std::int64_t tasks(std::int64_t batch) const { return batch * band.heads * band.segments * runs; }
  std::size_t scratch_bytes() const {
    return static_cast<std::size_t>(long_band_blocks) * static_cast<std::size_t>(slots) * key_sums_bytes;
  }
};

// Pairs of tiles of 64 x 64 that a whole segment visits, and query tiles that see a key tile away from both ends.
inline std::int64_t pairs_of_segment(const BandPlan& band, std::int32_t seen) {
  const std::int64_t tiles = tiles_in(band.set.length, band_rows), inner = std::max<std::int64_t>(tiles - seen, 0);
  const std::int64_t rest = tiles - inner;  // these are seen by ever fewer
  return inner * seen + (rest + 1) * rest / 2 + rest / 2;
}

// Chooses runs so that blocks are evenly busy and little work is repeated at their ends.
inline void divide(LongBandPlan& plan, std::int64_t batch) {
  const BandPlan& band = plan.band;
  const std::int32_t tiles = tiles_in(band.set.length, band_rows), chunks = tiles_in(band.set.length, chunk_rows);
  const std::int32_t width = band.shape.block > 0 ? band.shape.block : band.shape.window;
  const std::int32_t seen = std::min((key_tile_rows - 2 + width) / band_rows + 1, tiles);
  const double segment = static_cast<double>(pairs_of_segment(band, seen));
  const std::int64_t units = std::max<std::int64_t>(batch * band.heads * band.segments, 1);
  // With eight runs per block no division leaves more than a ninth of the blocks idle.
  const std::int64_t most_runs =
      std::min<std::int64_t>(chunks, std::max<std::int64_t>(8 * long_band_blocks / units, 1));
  const double needed = segment * static_cast<double>(units) / long_band_blocks;
  for (std::int32_t runs = 1; runs <= most_runs; ++runs) {
    const std::int32_t run = tiles_in(chunks, runs);
    if (tiles_in(chunks, run) != runs) continue;
    const std::int64_t tasks = units * runs;
    const double waves = static_cast<double>((tasks + long_band_blocks - 1) / long_band_blocks);
    // Half of what is repeated is queries before the run's keys, and half keys before later queries.
    const double of_run =
        runs == 1 ? segment : static_cast<double>(run) * chunk_tiles * seen + static_cast<double>(seen) * seen;
    const double busy = needed / (waves * of_run);
    if (busy > plan.busy) {
      plan.busy = busy;
      plan.run = run;
      plan.runs = runs;
    }
  }
}

// False for other attentions, and for those that are better divided by the general kernels. AttentionPath::sm90 takes
// every long band.
inline bool find_long_band(const AttentionBackwardArgs& args, LongBandPlan& plan) {
  const std::int64_t key_size = args.q.size(3), value_size = args.v.size(3);
  if (args.path == AttentionPath::portable || key_size > long_band_head || value_size > long_band_head ||
      (key_size <= long_band_head / 2 && value_size <= long_band_head / 2))
    return false;
  plan = {};
  if (!find_any_band(*args.plan, plan.band) || plan.band.reach <= most_reach) return false;
  const std::int32_t later = later_chunks(plan.band.shape, plan.band.set.length);
  if (later > most_later_chunks) return false;
  plan.slots = later * chunk_key_tiles;
  divide(plan, args.q.size(0));
  return plan.busy >= least_busy || args.path == AttentionPath::sm90;
}

}  // namespace longstride::kernels::cuda::sm90
