// Where a block of the forward kernel has queries, keys and values in shared memory, and what its threads tell each
// other there.
#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "kernels/attention/sm90/forward/forward_task.cuh"
#include "kernels/attention/sm90/forward/forward_tiling.h"
#include "kernels/attention/sm90/forward/key_list.cuh"
#include "kernels/attention/sm90/forward/key_tiles.cuh"
#include "kernels/gpu/ring.cuh"

namespace longstride::kernels::cuda::sm90 {

// `Pieces`: tiles of summary rows are read in pieces (tile_pieces.h).
template <class T, int KeySize, int ValueSize, KeysPerQuery KeyCount, bool Pieces, class OfTerm>
struct ForwardLayout {
  using Term = OfTerm;
  static constexpr bool listed = KeyCount == KeysPerQuery::listed;
  using Problem =
      std::conditional_t<Pieces, ForwardProblemInPieces,
                         std::conditional_t<listed, ForwardProblemOfLists,
                                            std::conditional_t<Term::given, ForwardProblemOfLabels, ForwardProblem>>>;
  static constexpr ForwardTiling tiling =
      Term::given ? forward_tiling_of_labels(ValueSize) : forward_tiling(ValueSize, KeyCount);
  static constexpr int queries = tiling.queries(), keys = tiling.keys, stages = tiling.stages,
                       warpgroups = tiling.warpgroups;
  static constexpr bool pieces = Pieces;
  static_assert(!Pieces || (KeySize >= 64 && ValueSize >= 64), "rows of 128 bytes");
  static_assert(!Term::given || (!Pieces && !listed), "rows in natural order");
  static_assert(!listed || (!Pieces && !tiling.specialised && queries == BlockLists::unit), "one list of one task");
  static constexpr int key_row = std::min(KeySize, 64) * 2, value_row = std::min(ValueSize, 64) * 2;
  static constexpr int key_boxes = (KeySize + 63) / 64, value_boxes = (ValueSize + 63) / 64;
  static constexpr int q_box = 64 * key_row, k_box = keys * key_row, v_box = keys * value_row, o_box = 64 * value_row;
  static constexpr int q_bytes = q_box * key_boxes, k_bytes = k_box * key_boxes, v_bytes = v_box * value_boxes;
  static constexpr int query_bytes = std::max(q_bytes, o_box* value_boxes);  // o reuses the memory of q

  // A block that is the only one of its multiprocessor has one task after the other, and loads the next one's queries
  // meanwhile.
  static constexpr int task_slots = tiling.specialised ? 2 : 1;

  // From a multiple of 1024 bytes: queries of every task, keys, values, and this.
  struct Shared {
    std::uint64_t q[task_slots], k[stages], v[stages], empty[stages];
    std::uint64_t task_full[task_slots], task_empty[task_slots];  // where there are two
    ForwardTask task[task_slots];                                 // without parts: there is none left
    RowIntervals<queries> rows[task_slots];
    std::conditional_t<listed, KeyList<queries, keys, stages>, KeyTiles<queries, keys>> producer_tiles;
    RingSlot producer_slot;
  };
  static constexpr int k_at = task_slots * warpgroups * query_bytes, v_at = k_at + stages * k_bytes,
                       control_at = v_at + stages * v_bytes;
  static constexpr std::size_t shared_bytes = control_at + sizeof(Shared) + 1024;
  static_assert(tiling.blocks * (shared_bytes + 1024) <= 228 * 1024);

  __device__ static Shared& shared_of(char* shared) { return *reinterpret_cast<Shared*>(shared + control_at); }
  // A warpgroup's queries.
  __device__ static char* queries_of(char* shared, int task, int warpgroup) {
    return shared + (task * warpgroups + warpgroup) * query_bytes;
  }
};

}  // namespace longstride::kernels::cuda::sm90
