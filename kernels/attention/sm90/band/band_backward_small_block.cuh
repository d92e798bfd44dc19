// The parts that the warpgroups of a block share in attention backward over a band, for heads of at most 32: shared
// memory, its barriers, the places of tiles, and the way of a gradient's rows to memory.
#pragma once
#include <cstddef>
#include <cstdint>

#include "kernels/attention/sm90/band/band_backward_math.cuh"
#include "kernels/attention/sm90/band/band_backward_small_task.cuh"

namespace longstride::kernels::cuda::sm90 {

inline constexpr int small_head = 32;

template <class T>
struct BandBackwardSmallBlock : BandBackward<T, small_head, small_head, BandBackwardSmallProblem> {
  using Common = BandBackward<T, small_head, small_head, BandBackwardSmallProblem>;
  using Common::key_bytes, Common::tile_bytes, Common::ds_bytes, Common::key_row, Common::rows;
  using Common::problem, Common::shared, Common::thread, Common::lane, Common::warp;
  using typename Common::Statistics;
  static constexpr int walkers = 3, block_threads = (walkers + 1) * warpgroup_threads;
  // Per thread: as many as the block begins with, four times 128.
  static constexpr int walking_registers = 152, serving_registers = 56;
  static constexpr int lead = 3;          // query tiles whose statistics are known before dQ of the first one
  static constexpr int slots = lead + 3;  // query tiles
  static constexpr int most_ds_slots = 3, late_rooms = 2;

  // How many query tiles have a slot for dS, the tiles of a slot, the late rooms of all walkers, and the key tiles.
  static constexpr bool has_late(int reach) { return reach > walkers; }
  static constexpr int ds_slots_of(int reach) { return has_late(reach) ? 2 : most_ds_slots; }
  static constexpr int ds_tiles_of(int reach) { return has_late(reach) ? walkers : reach; }
  static constexpr int late_of(int reach) { return has_late(reach) ? walkers * late_rooms : 0; }
  static constexpr int stages_of(int reach) { return reach < most_reach ? reach + 2 : reach + 1; }

  // Shared memory, from a multiple of 1024 bytes.
  struct SharedLayout {
    int keys = 0, ds = 0, gradients = 0, statistics = 0, barriers = 0, end = 0;

    constexpr explicit SharedLayout(int reach) {
      keys = slots * tile_bytes;
      ds = keys + stages_of(reach) * tile_bytes;
      gradients = ds + (ds_slots_of(reach) * ds_tiles_of(reach) + late_of(reach)) * ds_bytes;
      statistics = gradients + walkers * tile_bytes + key_bytes;
      barriers = statistics + slots * static_cast<int>(sizeof(Statistics));
      end = barriers + (3 * slots + 2 * most_ds_slots + walkers * late_rooms + stages_of(reach)) * 8;
    }
  };
  static constexpr std::size_t shared_bytes(int reach) {
    return static_cast<std::size_t>(SharedLayout(reach).end) + tile_alignment;
  }

  const BandBackwardSmallTask task;
  const SharedLayout at;
  const int group;  // the warpgroup: one of the walkers, or else the server

  // Called by all threads.
  __device__ BandBackwardSmallBlock(const BandBackwardSmallProblem& p, const BandBackwardSmallTask& t, char* memory)
      : Common(p, memory, this_thread() % warpgroup_threads), task(t), at(p.reach), group(uniform(this_warpgroup())) {}

  // ---- Barriers ----

  // Where data pass between warpgroups by ordinary loads (statistics), every thread arrives itself, because racecheck
  // does not accept an arrival on behalf of another thread. Other tiles are read by matrix products alone, so one
  // thread arrives for its warp.
  __device__ std::uint64_t* barrier(int i) const { return reinterpret_cast<std::uint64_t*>(shared + at.barriers) + i; }
  __device__ std::uint64_t* query_full(int slot) const { return barrier(slot); }
  __device__ std::uint64_t* query_empty(int slot) const { return barrier(slots + slot); }
  __device__ std::uint64_t* statistics_full(int slot) const { return barrier(2 * slots + slot); }
  __device__ std::uint64_t* ds_full(int slot) const { return barrier(3 * slots + slot); }
  __device__ std::uint64_t* ds_empty(int slot) const { return barrier(3 * slots + most_ds_slots + slot); }
  __device__ std::uint64_t* late_empty(int room) const { return barrier(3 * slots + 2 * most_ds_slots + room); }
  __device__ std::uint64_t* key_full(int stage) const {
    return barrier(3 * slots + 2 * most_ds_slots + walkers * late_rooms + stage);
  }
  __device__ void init_barriers() const {
    for (int i = 0; i < slots; ++i) {
      barrier_init(query_full(i), 1);
      barrier_init(query_empty(i), walkers * warpgroup_threads);
      barrier_init(statistics_full(i), warpgroup_threads);
    }
    for (int i = 0; i < walkers * late_rooms; ++i) barrier_init(late_empty(i), warpgroup_warps);
    for (int i = 0; i < most_ds_slots; ++i) {
      barrier_init(ds_full(i), walkers * warpgroup_warps);
      barrier_init(ds_empty(i), warpgroup_warps);
    }
    for (int i = 0; i < stages_of(problem.reach); ++i) barrier_init(key_full(i), 1);
    barrier_init_fence();
  }

  // ---- Shared memory ----

  __device__ char* query_tile(int slot) const { return shared + slot * tile_bytes; }
  __device__ char* key_tile(int stage) const { return shared + at.keys + stage * tile_bytes; }
  __device__ Statistics& statistics(int slot) const {
    return reinterpret_cast<Statistics*>(shared + at.statistics)[slot];
  }
  // The place of a pair's dS in tiles: in the query tile's slot if its key tile is one of the last three that it sees,
  // otherwise in one of the walker's late rooms.
  __device__ int ds_tile(int slot, int ahead) const { return slot * ds_tiles_of(problem.reach) + ahead; }
  __device__ int late_tile(int room) const { return ds_slots_of(problem.reach) * ds_tiles_of(problem.reach) + room; }

  // ---- Tiles of the block ----

  __device__ BandBackwardPlace place_of(std::int32_t tile) const { return task.place(problem, tile); }
  __device__ std::int32_t first_key() const { return problem.shape.low(task.begin * rows) / rows; }
  // The first key tile that a query tile sees.
  __device__ std::int32_t first_key(std::int32_t query) const {
    const std::int32_t first = problem.by_tiles.quotient(query) * static_cast<std::int32_t>(problem.by_tiles.value);
    return first + problem.shape.low((query - first) * rows) / rows;
  }
  // The end of the query tiles that see a key tile.
  __device__ std::int32_t query_end(const BandBackwardPlace& place, std::int32_t key) const {
    return place.first + problem.shape.end_tile(key - place.first, task.counted(problem, place));
  }
  __device__ std::int32_t query_end() const {
    return problem.chain > 1 ? task.end : query_end(place_of(task.end - 1), task.end - 1);
  }
  __device__ Coordinates corner(std::int32_t base, std::int32_t entry) const {
    const bool natural = task.step == 1;
    return {{0, task.head, natural ? base + entry : base, natural ? 0 : entry, task.sequence}};
  }
  __device__ static const CUtensorMap* map_of(const RowMaps& maps, std::int32_t base) {
    return base < maps.rest ? &maps.longer : &maps.complete;
  }

  // ---- Gradients ----

  // Stores a warp's rows of a gradient in shared memory, in TMA's order, `to_byte` bytes into the room for gradients.
  __device__ void put(int to_byte, const float (&values)[small_head / 2], float factor) const {
    char* const to = shared + at.gradients + to_byte + warp * 16 * key_row;
#pragma unroll
    for (int j = 0; j < small_head / 8; j += 2) {
      const int within = lane % 16 * key_row + (j + lane / 16) * 16, swizzled = within ^ (within >> 7) % 4 << 4;
      const float* d = values + 4 * j;
      store_matrices(to + swizzled, pack<T>(d[0] * factor, d[1] * factor), pack<T>(d[2] * factor, d[3] * factor),
                     pack<T>(d[4] * factor, d[5] * factor), pack<T>(d[6] * factor, d[7] * factor));
    }
  }
  // Copies them from there to the tile that begins with this entry. Called by one lane, after proxy_fence and
  // __syncwarp.
  __device__ void leave(const RowMaps& maps, std::int32_t base, std::int32_t length, std::int32_t first,
                        int from_byte) const {
    const std::int32_t entry = first + warp * 16;
    if (entry < length)
      tma_store(map_of(maps, base), corner(base, entry), shared + at.gradients + from_byte + warp * 16 * key_row);
  }
  // Waits until the room may be written again.
  __device__ void forget() const {
    if (lane == 0) store_wait<0>();
    __syncwarp();
  }
};

}  // namespace longstride::kernels::cuda::sm90
