// Where a block of a backward kernel has its own rows and the streamed tiles in shared memory, and what its threads
// tell each other there.
#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "kernels/attention/sm90/general/backward_problem.h"
#include "kernels/attention/sm90/general/backward_tiles.cuh"
#include "kernels/attention/sm90/general/listed_tiles.cuh"
#include "kernels/attention/term/labels_sm90.cuh"
#include "kernels/attention/term/none_sm90.h"

namespace longstride::kernels::cuda::sm90 {

template <int KeySize, int ValueSize, Side Of, TileSource Source, class OfTerm>
struct BackwardLayout {
  using Term = OfTerm;
  static constexpr Side side = Of;
  static constexpr bool pieces = Source == TileSource::pieces, listed = Source == TileSource::lists;
  using Problem =
      std::conditional_t<pieces, BackwardProblemInPieces,
                         std::conditional_t<listed, BackwardProblemOfLists,
                                            std::conditional_t<Term::given, BackwardProblemOfLabels, BackwardProblem>>>;
  static constexpr BackwardTiling tiling = Term::given ? backward_tiling_of_labels(side, KeySize, ValueSize)
                                                       : backward_tiling(side, KeySize, ValueSize, Source);
  static constexpr int rows = tiling.rows(), step = tiling.step, stages = tiling.stages, warpgroups = tiling.warpgroups;
  static_assert(stages >= 2, "a warpgroup waits for a tile with the one before in hand");
  static_assert(tiling.has_registers());
  static_assert(!pieces || (KeySize >= 64 && ValueSize >= 64), "rows of 128 bytes");
  static_assert(!Term::given || Source == TileSource::boxes, "rows in natural order");
  static_assert(!listed || rows == BlockLists::unit, "a block's rows have one list");
  static constexpr int key_row = std::min(KeySize, 64) * 2, value_row = std::min(ValueSize, 64) * 2;
  static constexpr int key_boxes = (KeySize + 63) / 64, value_boxes = (ValueSize + 63) / 64;

  struct None {};
  // Shared memory, from a multiple of 1024 bytes: own rows of each warpgroup, the ring, and this.
  struct Shared {
    // Side::keys: of the streamed queries, in the order of statistics_slot; lse is -log2(e) lse.
    alignas(16) float lse[stages][step], delta[stages][step];
    std::uint64_t own, full[stages], empty[stages];
    MeetingRows<side, rows> meeting;
    [[no_unique_address]] std::conditional_t<listed, ListedTiles<stages>, None> list;
    [[no_unique_address]] std::conditional_t<Term::given && side == Side::keys, LabelColumns<stages, step>, NoTerm>
        labels;
  };
  static constexpr int own_key_bytes = 64 * KeySize * 2, own_value_bytes = 64 * ValueSize * 2,
                       own_bytes = own_key_bytes + own_value_bytes;
  static constexpr int key_bytes = step * KeySize * 2, value_bytes = step * ValueSize * 2,
                       tile_bytes = key_bytes + value_bytes;
  static constexpr int ring_at = warpgroups * own_bytes, control_at = ring_at + stages * tile_bytes;
  static constexpr std::size_t shared_bytes = control_at + sizeof(Shared) + 1024;
  static_assert(tiling.blocks * (shared_bytes + 1024) <= 228 * 1024);
  // Every thread that writes or reads lse and delta arrives itself; otherwise one thread arrives for its warp.
  // racecheck does not accept an arrival on behalf of another thread, and the extra arrivals cost nothing measurable.
  static constexpr int full_arrivals = side == Side::keys ? 33 : 1,
                       empty_arrivals = warpgroups * (side == Side::keys ? 128 : 4);
  // A thread has four of every sixteen columns, two of each half. They are stored together, 16 bytes at 4 (column / 2).
  __device__ static int statistics_slot(int column) {
    return column / 16 * 16 + column % 8 / 2 * 4 + column / 8 % 2 * 2 + column % 2;
  }
  __device__ static Shared& shared_of(char* shared) { return *reinterpret_cast<Shared*>(shared + control_at); }

  static constexpr bool own_by_warp = pieces && side == Side::keys;
};

}  // namespace longstride::kernels::cuda::sm90
