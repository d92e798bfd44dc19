// A band (choice.cpp finds it), and its division between blocks.
#pragma once
#include <algorithm>
#include <cstdint>

#include "kernels/attention/pattern/tile_span.h"
#include "kernels/attention/sm90/band/band_shape.h"

namespace longstride::kernels::cuda::sm90 {

struct BandPlan {
  RowSet set;  // class 0, queries and keys alike
  BandShape shape;
  std::int32_t n = 0, classes = 0, heads = 0;
  std::int32_t reach = 0;  // most query tiles that see a key tile, and most key tiles that a query tile sees
};

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
