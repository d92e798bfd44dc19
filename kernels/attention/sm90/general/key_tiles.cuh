// The key tiles of a query tile: those of every part of its pass, part by part. The interval of each row is computed
// once, in shared memory; every warp of a block then visits the same tiles in the same order.
#pragma once
#include <cstdint>

#include "kernels/attention/pattern/tile_span.h"
#include "kernels/attention/sm90/general/pass_shape.h"

namespace longstride::kernels::cuda::sm90 {

// The interval of every row of a query tile in every part; rows beyond the row set have the last row's.
template <int Queries>
struct RowIntervals {
  Interval row[PassGeometry::most_parts][Queries];

  // Called by all threads of the block; then __syncthreads.
  __device__ void fill(const PassShape& pass, std::int32_t segment, std::int32_t begin, std::int32_t length) {
    for (std::int32_t r = threadIdx.x; r < Queries; r += blockDim.x) {
      const std::int32_t position = segment + min(begin + r, length - 1) * pass.step;
      for (std::int32_t p = 0; p < pass.parts; ++p) row[p][r] = pass.part[p].interval(position, segment);
    }
  }
};

template <int Queries, int Keys>
struct KeyTiles {
  std::int32_t next_part, part, tile, end;
  bool entered;  // the tile is the first of its part

  // Moves from all zeros to the first tile, then to the next; false after the last one. Relies on the ends of
  // intervals, which never decrease from row to row.
  __device__ bool next(const RowIntervals<Queries>& rows, std::int32_t parts) {
    entered = false;
    ++tile;
    while (tile >= end) {
      if (next_part == parts) return false;
      part = next_part++;
      tile = rows.row[part][0].begin / Keys;
      end = tiles_in(rows.row[part][Queries - 1].end, Keys);
      entered = true;
    }
    return true;
  }

  __device__ std::int32_t begin() const { return tile * Keys; }  // entry of the row set
};

}  // namespace longstride::kernels::cuda::sm90
