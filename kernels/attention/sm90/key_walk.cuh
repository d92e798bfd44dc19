// The key tiles of a query tile: those of every part of its pass, one part after the other. What each row may attend to
// is computed once, into shared memory; every warp of a block then walks the same tiles in the same order.
#pragma once
#include <cstdint>

#include "kernels/attention/sm90/geometry.h"
#include "kernels/attention/tile_span.h"

namespace longstride::kernels::cuda::sm90 {

// As Stream and Part count, without a division in natural order.
__device__ inline std::int32_t count_below(const Stream& stream, std::int32_t p) {
  if (stream.run >= stream.period) return min(max(p - stream.base, 0), stream.length);
  return stream.count_below(p);
}
__device__ inline std::int32_t position_of(const Stream& stream, std::int32_t entry) {
  return stream.run >= stream.period ? stream.base + entry : stream.position(entry);
}
__device__ inline Stream segment_of(const Stream& stream, const PassGeometry& pass, std::int32_t segment,
                                    std::int32_t n) {
  return pass.segments == 1 ? stream : stream_within(stream, segment, n);
}

// The interval of every row of a query tile in every part; rows beyond the stream have the last row's.
template <int Queries>
struct RowIntervals {
  Interval row[PassGeometry::most_parts][Queries];

  // The block's threads together; then __syncthreads.
  __device__ void fill(const PassGeometry& pass, const Stream& queries, std::int32_t segment, std::int32_t n,
                       std::int32_t begin) {
    for (std::int32_t r = threadIdx.x; r < Queries; r += blockDim.x) {
      const std::int32_t position = position_of(queries, min(begin + r, queries.length - 1));
      for (std::int32_t p = 0; p < pass.parts; ++p) {
        const Part& part = pass.part[p];
        const Stream keys = segment_of(part.keys, pass, segment, n);
        row[p][r] = {count_below(keys, part.low.of(position)), count_below(keys, part.high.of(position) + 1)};
      }
    }
  }
};

template <int Queries, int Keys>
struct KeyWalk {
  std::int32_t next_part, part, tile, end;
  bool entered;  // the tile is the first of its part

  // From all zeros to the first tile, then to the next; false after the last one. Ends of intervals never decrease from
  // row to row.
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

  __device__ std::int32_t begin() const { return tile * Keys; }  // stream entry
};

}  // namespace longstride::kernels::cuda::sm90
