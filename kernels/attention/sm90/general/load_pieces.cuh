// Copies of a tile in pieces (tile_pieces.h) by TMA. Every row of a tile has 128 bytes, so that any number of rows is a
// destination that TMA accepts; it applies the swizzle to addresses, wherever a box begins.
#pragma once
#include <cstdint>

#include "kernels/attention/sm90/general/piece_maps.h"
#include "kernels/attention/sm90/general/tile_pieces.h"
#include "kernels/gpu/tma.cuh"

namespace longstride::kernels::cuda::sm90 {

// Where the pieces of a tile of k or v come from and go to: `Boxes` boxes of 64 columns, `BoxBytes` apart.
template <int Boxes, int BoxBytes>
struct PieceCopy {
  const CUtensorMap* of_runs;
  const PieceMaps& of_powers;
  char* to;
  std::uint64_t* barrier;  // the bytes complete on it

  __device__ void start(const Piece& piece, int i, std::int32_t head, std::int32_t sequence) const {
    const CUtensorMap* map = i >= TilePieces::first_run ? of_runs : &of_powers.of[i % TilePieces::powers];
#pragma unroll
    for (int b = 0; b < Boxes; ++b)
      tma_load(to + b * BoxBytes + piece.row * 128, map, {{b * 64, head, piece.position, 0, sequence}}, barrier);
  }
};

// Starts the copies of pieces first, first + step, ..., of k and of v or of one of them: a warp's lanes share them, or
// one thread starts all.
template <class... Copies>
__device__ inline void load_pieces(const TilePieces& pieces, std::int32_t head, std::int32_t sequence, int first,
                                   int step, const Copies&... copies) {
#pragma unroll 1
  for (int i = first; i < pieces.count(); i += step) {
    const Piece piece = pieces.piece(i);
    if (piece.rows == 0) continue;
    (copies.start(piece, i, head, sequence), ...);
  }
}

}  // namespace longstride::kernels::cuda::sm90
