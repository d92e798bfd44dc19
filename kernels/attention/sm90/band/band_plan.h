// Recognises bands, and divides a band between blocks.
#pragma once
#include <algorithm>
#include <cstdint>

#include "kernels/attention/pattern/tile_span.h"
#include "kernels/attention/sm90/band/band_shape.h"
#include "kernels/attention/sm90/general/geometry.h"

namespace longstride::kernels::cuda::sm90 {

struct BandPlan {
  RowSet set;  // of class 0, queries and keys alike
  BandShape shape;
  std::int32_t n, classes, heads;
  std::int32_t reach;  // most query tiles that see a key tile, and most key tiles that a query tile sees
};

// The band of a plan whose heads all have one part, whose keys are the queries' row set, however wide. Returns false
// for any other plan.
inline bool find_any_band(const AttentionPlan& plan, BandPlan& band) {
  Geometry geometry;
  if (passes_in(plan) != 1 || !geometry_of(plan, 0, geometry) || geometry.passes != 1) return false;
  const PassGeometry& pass = geometry.pass[0];
  const Part& part = pass.part[0];
  if (pass.parts != 1 || !(part.keys == pass.queries) || !(part.high == Limit{})) return false;
  const bool natural = part.keys.run >= part.keys.period;
  if (part.low.block > 0 && (!natural || part.low.back != 0)) return false;
  band.set = part.keys;
  band.classes = pass.classes;
  band.n = plan.n;
  band.heads = geometry.heads;
  band.shape.block = part.low.block;
  band.shape.window = std::min(part.low.back / (natural ? 1 : part.keys.period) + 1, part.keys.length);
  const std::int32_t tiles = tiles_in(band.set.length, band_rows), block = band.shape.block;
  if (block <= 0)
    band.reach = std::min((band.shape.window + 2 * band_rows - 2) / band_rows, tiles);
  else
    band.reach = std::min(tiles_in(block, band_rows) + (block % band_rows == 0 ? 0 : 1), tiles);
  return true;
}
// A band whose tiles that see one another fit into shared memory together.
inline bool find_band(const AttentionPlan& plan, BandPlan& band) {
  return find_any_band(plan, band) && band.reach <= most_reach;
}

// The division of a band between blocks: a block owns `run` tiles of a class or, where classes are short, all tiles
// of `chain` consecutive classes.
struct BandShares {
  std::int32_t run = 1, chain = 1;
  double cost = 0;  // in consecutive steps of the longest block
};

// Chooses the length of runs: short runs fill the GPU evenly, long ones repeat less of the work at their ends.
inline BandShares choose_run(const BandPlan& band, std::int64_t batch, std::int64_t at_once) {
  const std::int32_t tiles = tiles_in(band.set.length, band_rows);
  BandShares best;
  for (std::int32_t runs = tiles; runs >= 1; runs = runs > 64 ? runs - runs / 64 : runs - 1) {
    const std::int32_t run = (tiles + runs - 1) / runs;
    const std::int64_t blocks = batch * band.heads * band.classes * tiles_in(tiles, run);
    const std::int64_t waves = (blocks + at_once - 1) / at_once;
    const double cost = static_cast<double>(waves) * (run + 1 + 0.5 * (tiles_in(tiles, run) > 1 ? band.reach - 1 : 0));
    if (best.cost == 0 || cost < best.cost) best = {run, 1, cost};
  }
  return best;
}

inline BandShares choose_chain(const BandPlan& band, std::int64_t batch, std::int64_t at_once) {
  const std::int32_t tiles = tiles_in(band.set.length, band_rows);
  BandShares best;
  for (std::int32_t chain = 1; chain <= std::min(band.classes, 256); ++chain) {
    const std::int64_t chains = batch * band.heads * tiles_in(band.classes, chain);
    const std::int64_t waves = (chains + at_once - 1) / at_once;
    const double cost = static_cast<double>(waves) * (static_cast<double>(chain) * tiles + 1);
    if (best.cost == 0 || cost < best.cost) best = {tiles, chain, cost};
  }
  return best;
}

}  // namespace longstride::kernels::cuda::sm90
