// Tiles of a row set, read by TMA straight from the natural layout. A view (batch, n, heads, size) and a row set's
// period make a 5-D tensor
//     (size, head, offset within a period, period, batch)
// in which any tile of consecutive entries is one box: (columns, 1, rows, 1, 1) in natural order, one period;
// (columns, 1, 1, rows, 1) of a residue class; (columns, 1, c, rows / c, 1) of summary rows c of every l. Rows beyond
// the map are read as zero and not written.
//
// If n is not a multiple of the period, the last period is incomplete. A residue class below n mod l has one row more
// than the others, so there are two maps, `complete` (whole periods only) and `longer` (one period more, of n mod l
// offsets; residue classes only). Neither map reads summary rows of the incomplete period: if a query may see them,
// tiles are read in pieces (general/tile_pieces.h).
#pragma once
#include <cuda.h>

#include <cstdint>

#include "kernels/attention/pattern/plan.h"
#include "kernels/base/op.h"

namespace longstride::kernels::cuda::sm90 {

// Box of a tile of `rows` entries: offsets x periods. rows is a multiple of the run, or the run of rows.
struct BoxShape {
  std::int32_t offsets = 1, periods = 1;
};
constexpr BoxShape box_of(const RowSet& set, std::int32_t rows) {
  if (set.run >= set.period || set.run >= rows) return {rows, 1};
  return {set.run, rows / set.run};
}
// The first entry of a tile in the map: offset within the period, and period. `set` is that of the class.
struct TileCorner {
  std::int32_t offset = 0, period = 0;
};
constexpr TileCorner corner_of(const RowSet& set, std::int32_t entry) {
  if (set.run >= set.period) return {set.base + entry, 0};
  return {set.base + entry % set.run, entry / set.run};
}

struct RowMaps {
  CUtensorMap complete;
  CUtensorMap longer;
  std::int32_t rest = 0;  // offsets below this are read through `longer`; 0 for summary rows
};

// Maps for tiles of `rows` entries of the row sets that have this row set's run and period, whatever their base. Each
// box has at most 64 columns, a row of 32, 64 or 128 bytes with the swizzle of that size; a head of 128 is two boxes,
// and `columns` beyond the size are zero. The view's data and strides are multiples of 16 bytes.
RowMaps row_maps(const Tensor& view, const RowSet& set, std::int32_t n, std::int32_t rows, std::int32_t columns);

}  // namespace longstride::kernels::cuda::sm90
