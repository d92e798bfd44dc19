// The streamed tiles of a block whose rows have a list of blocks (pattern/block_lists.h). The thread that loads tiles
// walks the list, and writes the number of each next to its slot of the ring, where the warpgroup reads it.
#pragma once
#include <cstdint>

#include "kernels/attention/pattern/block_lists.h"
#include "kernels/attention/pattern/tile_span.h"
#include "kernels/gpu/lane.cuh"

namespace longstride::kernels::cuda::sm90 {

// In shared memory.
template <int Stages>
struct ListedTiles {
  TileWalk walk;  // that of the loading thread
  bool some;      // the list has a tile that a row meets
  struct {
    std::int32_t tile;
    bool more;  // another tile follows
  } told[Stages];

  // By the loading thread, before the block's threads meet: the list comes from memory while the intervals of the rows
  // are computed. first, last: those of the first and of the last row.
  __device__ void enter(const BlockList& list, const Interval& first, const Interval& last, std::int32_t step) {
    const std::int32_t begin = first.begin / step, end = tiles_in(last.end, step);
    walk = {{begin, begin, end, end}, list, step};
    some = walk.more();
  }
  // By the loading thread, when the slot is free and before its copies are announced.
  __device__ void tell(int slot, std::int32_t tile, bool more) { told[slot] = {tile, more}; }
  // By a whole warp, between the arrival of a copy and the release of the slot: the tile; sets whether more follow. The
  // lane that releases the slot reads.
  __device__ std::int32_t read(int slot, bool& more) const {
    std::int32_t tile = 0, follows = 0;
    if (this_lane() == 0) {
      tile = told[slot].tile;
      follows = told[slot].more;
    }
    more = uniform(follows) != 0;
    return uniform(tile);
  }
};

}  // namespace longstride::kernels::cuda::sm90
