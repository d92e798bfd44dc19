// The parts that the warpgroups of a block share in attention backward over a band of three key tiles per query tile,
// for heads of 33 to 64: shared memory, its barriers, and the tiles of the block.
#pragma once
#include <cstddef>
#include <cstdint>

#include "kernels/attention/sm90/band/band_backward_large_math.cuh"

namespace longstride::kernels::cuda::sm90 {

inline constexpr int served_head = 64;
// With as many key tiles per query tile, at most, each walker's dS comes in the order in which dQ needs it.
inline constexpr std::int32_t served_reach = 3;

struct BandBackwardServedProblem : BandBackwardProblem {
  RowMaps dk_maps, dv_maps;  // boxes of a warp's sixteen rows
};

template <class T>
struct BandBackwardServedBlock : BandBackwardLargeMath<T, served_head, served_head> {
  using Common = BandBackwardLargeMath<T, served_head, served_head>;
  using Common::key_bytes, Common::value_bytes, Common::tile_bytes, Common::ds_bytes, Common::rows;
  using Common::problem, Common::shared, Common::task;
  using typename Common::Statistics;
  static constexpr int walkers = 2, block_threads = (walkers + 1) * warpgroup_threads;
  // Per thread: as many as the block begins with, three times 168.
  static constexpr int walking_registers = 200, serving_registers = 104;
  static constexpr int lead = 3;  // query tiles whose statistics are known before dQ of the first one
  static_assert(lead >= served_reach, "or the last query tiles would have no statistics");
  static constexpr int slots = 4;  // query tiles
  // With three stages of values walkers would wait for them a quarter of the time: a stage is free only once the
  // gradient that took its place has left, during its walker's next key tile.
  static constexpr int key_stages = 5, value_stages = 5;
  static constexpr int rooms = 3;  // per walker, for dS

  // Shared memory, from a multiple of 1024 bytes.
  static constexpr int keys_at = slots * tile_bytes, values_at = keys_at + key_stages * key_bytes,
                       ds_at = values_at + value_stages * value_bytes,
                       statistics_at = ds_at + walkers * rooms * ds_bytes,
                       barriers_at = statistics_at + slots * static_cast<int>(sizeof(Statistics)),
                       barrier_count = 3 * slots + key_stages + 2 * value_stages + 2 * walkers * rooms;
  static constexpr std::size_t shared_bytes = barriers_at + barrier_count * 8 + 1024;
  static_assert(shared_bytes <= shared_of_block);

  const BandBackwardServedProblem& served;
  const int group;  // the warpgroup: one of the walkers, or else the server

  // Called by all threads.
  __device__ BandBackwardServedBlock(const BandBackwardServedProblem& p, const BandBackwardLargeTask& t, char* memory)
      : Common(p, t, memory, this_thread() % warpgroup_threads), served(p), group(uniform(this_warpgroup())) {}

  // ---- Barriers ----

  // Where data pass between warpgroups by ordinary loads (statistics), every thread arrives itself, because racecheck
  // does not accept an arrival on behalf of another thread. Other tiles are read by matrix products alone, so one
  // thread arrives for its warp.
  __device__ std::uint64_t* barrier(int i) const { return reinterpret_cast<std::uint64_t*>(shared + barriers_at) + i; }
  __device__ std::uint64_t* query_full(int slot) const { return barrier(slot); }
  __device__ std::uint64_t* query_empty(int slot) const { return barrier(slots + slot); }
  __device__ std::uint64_t* statistics_full(int slot) const { return barrier(2 * slots + slot); }
  __device__ std::uint64_t* key_full(int stage) const { return barrier(3 * slots + stage); }
  __device__ std::uint64_t* value_full(int stage) const { return barrier(3 * slots + key_stages + stage); }
  __device__ std::uint64_t* value_empty(int stage) const { return value_full(value_stages + stage); }
  __device__ std::uint64_t* ds_full(int room) const { return value_full(2 * value_stages + room); }
  __device__ std::uint64_t* ds_empty(int room) const { return ds_full(walkers * rooms + room); }
  __device__ void init_barriers() const {
    for (int i = 0; i < slots; ++i) {
      barrier_init(query_full(i), 1);
      barrier_init(query_empty(i), walkers * warpgroup_threads);
      barrier_init(statistics_full(i), warpgroup_threads);
    }
    for (int i = 0; i < key_stages; ++i) barrier_init(key_full(i), 1);
    for (int i = 0; i < value_stages; ++i) {
      barrier_init(value_full(i), 1);
      barrier_init(value_empty(i), warpgroup_warps);
    }
    for (int i = 0; i < walkers * rooms; ++i) {
      barrier_init(ds_full(i), warpgroup_warps);
      barrier_init(ds_empty(i), warpgroup_warps);
    }
    barrier_init_fence();
  }

  // ---- Shared memory ----

  __device__ char* query_tile(int slot) const { return shared + slot * tile_bytes; }
  __device__ char* key_tile(int stage) const { return shared + keys_at + stage * key_bytes; }
  __device__ char* value_tile(int stage) const { return shared + values_at + stage * value_bytes; }
  __device__ char* ds_tile(int room) const { return shared + ds_at + room * ds_bytes; }
  __device__ Statistics& statistics(int slot) const {
    return reinterpret_cast<Statistics*>(shared + statistics_at)[slot];
  }

  // ---- Tiles of the block ----

  // Computed anew where it is needed, because walkers have no registers for it.
  __device__ RingSlot slot_of(std::int32_t query) const {
    static_assert((slots & (slots - 1)) == 0);
    const auto use = static_cast<std::uint32_t>(query - task.begin);
    return {static_cast<int>(use % slots), use / slots & 1};
  }
  // The first key tile that a query tile sees.
  __device__ std::int32_t first_key(std::int32_t query) const { return problem.shape.low(query * rows) / rows; }
  // The end of the query tiles that see a key tile.
  __device__ std::int32_t query_end(std::int32_t key) const { return problem.shape.end_tile(key, task.length); }
};

}  // namespace longstride::kernels::cuda::sm90
