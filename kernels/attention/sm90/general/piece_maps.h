// Tensor maps for tiles that are read in pieces (tile_pieces.h).
#pragma once
#include <algorithm>
#include <cstdint>

#include "kernels/attention/sm90/general/geometry.h"
#include "kernels/attention/sm90/general/tile_pieces.h"
#include "kernels/attention/sm90/row_maps.h"

namespace longstride::kernels::cuda::sm90 {

// Boxes of 2^i neighbouring rows of k or v.
struct PieceMaps {
  CUtensorMap of[TilePieces::powers];
};

inline PieceMaps piece_maps(const Tensor& view, std::int32_t n, std::int32_t columns) {
  PieceMaps maps;
  for (int i = 0; i < TilePieces::powers; ++i) maps.of[i] = row_maps(view, {}, n, 1 << i, columns).complete;
  return maps;
}

// Maps for tiles of `rows` entries of one kind of row set. `pieces`: tiles of summary rows are read in pieces, of which
// these maps hold the whole runs.
inline RowMaps key_maps(const Tensor& view, const RowSet& set, std::int32_t n, std::int32_t rows, std::int32_t columns,
                        bool pieces) {
  if (pieces && is_summary(set)) return row_maps(view, {}, n, std::min(set.run, rows), columns);
  return row_maps(view, set, n, rows, columns);
}

}  // namespace longstride::kernels::cuda::sm90
