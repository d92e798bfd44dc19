// A block's share of attention backward over a band, for heads of at most 32.
#pragma once
#include <cstdint>

#include "kernels/attention/sm90/band/band_backward_problem.h"
#include "kernels/attention/sm90/general/pass_shape.h"

namespace longstride::kernels::cuda::sm90 {

struct BandBackwardSmallProblem : BandBackwardProblem {
  RowMaps dq_maps, dk_maps, dv_maps;  // boxes of a warp's sixteen rows
  // A block owns `run` tiles of a class, or all tiles of `chain` consecutive classes. The tiles of a chain are
  // numbered consecutively, and every class counts as many as the longest.
  std::int32_t chain;
  Divisor by_heads, by_chains, by_period;
  Divisor by_tiles;  // tiles per class of a chain; otherwise larger than any tile number
};

// Where a tile is: its class, and the number of that class's first tile.
struct BandBackwardPlace : BandBackwardTask {
  std::int32_t first;
};

// Tiles [begin, end); base and length are those of the first class.
struct BandBackwardSmallTask : BandBackwardTask {
  __device__ explicit BandBackwardSmallTask(const BandBackwardSmallProblem& problem) {
    const auto block = static_cast<std::int32_t>(blockIdx.x), heads = static_cast<std::int32_t>(problem.by_heads.value),
               chains = static_cast<std::int32_t>(problem.by_chains.value);
    const std::int32_t rest = problem.by_heads.quotient(block);
    head = block - rest * heads;
    const std::int32_t run = problem.by_chains.quotient(rest);
    residue = (rest - run * chains) * problem.chain;
    sequence = static_cast<std::int32_t>(blockIdx.y);
    step = problem.set.run >= problem.set.period ? 1 : problem.set.period;
    base = problem.set.base + residue;
    length = length_from(problem, base);
    const std::int32_t tiles = (counted(problem, *this) + band_rows - 1) / band_rows;
    begin = run * problem.run;
    end = problem.chain > 1 ? min(problem.chain, problem.classes - residue) * tiles : min(begin + problem.run, tiles);
  }
  // Entries of the class that begins at this position.
  __device__ std::int32_t length_from(const BandBackwardSmallProblem& problem, std::int32_t position) const {
    return step == 1 ? problem.set.length : problem.by_period.quotient(problem.n - position + step - 1);
  }
  // Entries that a class's tiles cover.
  __device__ static std::int32_t counted(const BandBackwardSmallProblem& problem, const BandBackwardTask& of) {
    return problem.chain > 1 ? problem.set.length : of.length;
  }
  __device__ BandBackwardPlace place(const BandBackwardSmallProblem& problem, std::int32_t tile) const {
    const std::int32_t later = problem.by_tiles.quotient(tile);
    BandBackwardPlace place{*this, later * static_cast<std::int32_t>(problem.by_tiles.value)};
    place.base += later;
    if (problem.chain > 1) place.length = length_from(problem, place.base);
    return place;
  }
};

}  // namespace longstride::kernels::cuda::sm90
