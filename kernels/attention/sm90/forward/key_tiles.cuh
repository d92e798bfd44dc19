// The key tiles of a query tile: those of every part of its pass, part by part. The interval of each row is computed
// once, in shared memory; every warp of a block then visits the same tiles in the same order.
#pragma once
#include <cstdint>

#include "kernels/attention/pattern/tile_span.h"
#include "kernels/attention/sm90/forward/forward_task.cuh"
#include "kernels/attention/sm90/general/pass_shape.h"

namespace longstride::kernels::cuda::sm90 {

// The interval of every row of a query tile in every part; rows beyond the row set have the last row's.
template <int Queries>
struct RowIntervals {
  Interval row[PassGeometry::most_parts][Queries];

  // By `threads` threads, of which this is the `thread`-th.
  template <class Problem>
  __device__ void fill(const Problem& problem, const ForwardTask& task, std::int32_t thread, std::int32_t threads) {
    const PassShape& pass = problem.pass[task.pass];
    const BoundsOfHead bounds = problem.bounds.of(problem.sequence_of(task.sequence), task.head);
    for (std::int32_t r = thread; r < Queries; r += threads) {
      const std::int32_t position = task.position(min(task.begin + r, task.length - 1));
      const Interval within = bounds.rows(position, problem.n);
      for (std::int32_t p = 0; p < pass.parts; ++p)
        row[p][r] = problem.share_of(pass.part[p].interval(position, task.residue, within), task.sequence);
    }
  }
};

template <int Queries, int Keys>
struct KeyTiles {
  std::int32_t next_part, part, tile, end;

  // Moves from all zeros to the first tile, then to the next; false after the last one. Relies on the ends of
  // intervals, which never decrease from row to row.
  __device__ bool next(const RowIntervals<Queries>& rows, std::int32_t parts) {
    ++tile;
    while (tile >= end) {
      if (next_part == parts) return false;
      part = next_part++;
      tile = rows.row[part][0].begin / Keys;
      end = tiles_in(rows.row[part][Queries - 1].end, Keys);
    }
    return true;
  }

  __device__ std::int32_t begin() const { return tile * Keys; }  // entry of the row set
};

}  // namespace longstride::kernels::cuda::sm90
