// A block of forward over a band: its tasks, its shared memory and its loads.
#pragma once
#include <algorithm>
#include <cstdint>

#include "kernels/attention/sm90/band/band_forward_problem.h"
#include "kernels/gpu/barrier.cuh"
#include "kernels/gpu/ring.cuh"
#include "kernels/gpu/tma.cuh"

namespace longstride::kernels::cuda::sm90 {

// Query tiles: [begin, end) in each of some classes.
struct BandForwardTask {
  std::int32_t head, sequence, run, residue, class_end;
  std::int32_t base, step, length;  // this class: entry t is at base + t * step
  std::int32_t begin, end;

  // Consecutive blocks have neighbouring heads, then neighbouring classes, because their rows are neighbours in
  // memory.
  __device__ BandForwardTask(const BandForwardProblem& problem, std::int32_t index) {
    const std::int32_t rest = problem.by_heads.quotient(index);
    head = index - rest * static_cast<std::int32_t>(problem.by_heads.value);
    sequence = static_cast<std::int32_t>(blockIdx.y);
    run = problem.by_chains.quotient(rest);
    residue = (rest - run * static_cast<std::int32_t>(problem.by_chains.value)) * problem.chain;
    class_end = min(residue + problem.chain, problem.classes);
    step = problem.set.run >= problem.set.period ? 1 : problem.set.period;
  }
  // Moves to this class; false after the last.
  __device__ bool enter(const BandForwardProblem& problem) {
    if (residue >= class_end) return false;
    base = problem.set.base + residue;
    length = step == 1 ? problem.set.length : problem.by_period.quotient(problem.n - base + step - 1);
    begin = run * problem.run;
    end = min(begin + problem.run, (length + band_rows - 1) / band_rows);
    return true;
  }
  __device__ Coordinates corner(std::int32_t entry, std::int32_t column) const {
    return {{column, head, step == 1 ? base + entry : base, step == 1 ? 0 : entry, sequence}};
  }
  __device__ const CUtensorMap* map_of(const RowMaps& maps) const {
    return base < maps.rest ? &maps.longer : &maps.complete;
  }
};

// Three warpgroups are consumers, two of keys of more than 64 columns, and one with few registers loads the tiles of
// all. The consumers have a task each, with a ring of keys and values of its own; or, where keys do not fit as often
// (`Shares`), one task and one ring, and take its query tiles in turn. A query tile sees up to `Reach` key tiles.
template <int KeySize, int ValueSize, bool Shares, int Reach>
struct BandForwardBlock {
  static constexpr int groups = KeySize > 64 ? 2 : 3, tasks = Shares ? 1 : groups,
                       sharers = groups / tasks;  // tasks per ring
  static constexpr int threads = (groups + 1) * 128, rows = band_rows, warps = 4, warp_rows = 16;
  // Given at the start, and as they are divided then.
  static constexpr int registers = 65536 / threads / 8 * 8, loader_registers = groups == 2 ? 40 : 32,
                       consumer_registers = groups == 2 ? 232 : 160;
  static_assert(loader_registers + groups * consumer_registers == (groups + 1) * registers);
  // Values of more than 64 columns, like many key tiles, leave room for one slot of queries; outputs leave 64 columns
  // at a time.
  static constexpr bool is_large = ValueSize > 64, is_far = Reach > most_reach;
  static constexpr int query_slots = is_large || is_far ? 1 : 2;  // per consumer
  static constexpr int key_row = std::min(KeySize, 64) * 2, value_row = std::min(ValueSize, 64) * 2;
  static constexpr int key_boxes = (KeySize + 63) / 64, value_boxes = (ValueSize + 63) / 64;
  static constexpr int key_bytes = rows * KeySize * 2, value_bytes = rows * ValueSize * 2;
  static constexpr int stage_bytes = key_bytes + value_bytes;
  static constexpr int warp_output_bytes = warp_rows * value_row;

  // Shared memory of a task, from a multiple of 1024 bytes: queries and outputs of every sharer, keys and values,
  // barriers.
  static constexpr int outputs_at = query_slots * key_bytes, sharer_bytes = outputs_at + warps * warp_output_bytes;
  static constexpr int keys_at = sharers * sharer_bytes, barrier_room = 1024;
  __host__ __device__ static constexpr int task_bytes(int stages) {
    return keys_at + stages * stage_bytes + barrier_room;
  }
  static constexpr std::size_t shared_bytes(int stages) {
    return static_cast<std::size_t>(tasks * task_bytes(stages)) + 1024;
  }
  // For sharers at consecutive query tiles. Fewer are not enough: a sharer keeps what it has seen until the tiles
  // before the first one that its next query tile sees are there.
  static constexpr int needed_stages(int reach) { return reach + sharers - 1; }

  const BandForwardProblem& problem;
  char* const shared;
  const int sharer;  // it takes the task's query tiles sharer, sharer + sharers, ...

  __device__ char* queries(int of, int slot) const { return shared + of * sharer_bytes + slot * key_bytes; }
  __device__ char* keys(int stage) const { return shared + keys_at + stage * stage_bytes; }
  __device__ std::uint64_t* barriers() const {
    return reinterpret_cast<std::uint64_t*>(shared + keys_at + problem.stages * stage_bytes);
  }
  __device__ std::uint64_t* query_full(int of, int slot) const { return barriers() + of * 2 * query_slots + slot; }
  __device__ std::uint64_t* query_empty(int of, int slot) const { return query_full(of, slot) + query_slots; }
  __device__ std::uint64_t* key_full(int stage) const { return barriers() + sharers * 2 * query_slots + stage; }
  __device__ std::uint64_t* key_empty(int stage) const { return key_full(problem.stages) + stage; }

  __device__ void init_barriers() const {
    for (int of = 0; of < sharers; ++of)
      for (int i = 0; i < query_slots; ++i) {
        barrier_init(query_full(of, i), 1);
        barrier_init(query_empty(of, i), warps);
      }
    for (int i = 0; i < problem.stages; ++i) {
      barrier_init(key_full(i), 1);
      barrier_init(key_empty(i), sharers * warps);
    }
    barrier_init_fence();
  }

  __device__ Coordinates key_corner(const BandForwardTask& task, std::int32_t tile, std::int32_t column) const {
    Coordinates corner = task.corner(tile * rows, column);
    corner.c[1] = problem.heads_per_key.quotient(task.head);
    return corner;
  }
  // The last key tile that a query tile sees is its own.
  __device__ std::int32_t first_key_tile(std::int32_t tile) const { return problem.limit.low(tile * rows) / rows; }

  // ---- Loads, by one thread ----

  // Loads every query tile, and before it the key tiles that no query tile before it has seen.
  __device__ void load(BandForwardTask task) const {
    RingSlot query_slot, key_slot;
    int of = 0;  // the sharer whose turn it is
    for (; task.enter(problem); ++task.residue) {
      std::int32_t key = first_key_tile(task.begin);
      for (std::int32_t tile = task.begin; tile < task.end; ++tile) {
        load_queries(task, tile, of, query_slot);
#pragma unroll 1
        for (; key <= tile; ++key) load_keys(task, key, key_slot);  // copies of it take registers that are not there
        if (++of == sharers) {
          of = 0;
          query_slot.advance(query_slots);
        }
      }
    }
  }
  __device__ void load_queries(const BandForwardTask& task, std::int32_t tile, int of, const RingSlot& at) const {
    barrier_wait(query_empty(of, at.index), at.parity ^ 1);
    std::uint64_t* const full = query_full(of, at.index);
    barrier_arrive_expect(full, key_bytes);
    for (int i = 0; i < key_boxes; ++i)
      tma_load(queries(of, at.index) + i * rows * key_row, task.map_of(problem.q), task.corner(tile * rows, i * 64),
               full);
  }
  __device__ void load_keys(const BandForwardTask& task, std::int32_t tile, RingSlot& at) const {
    char* const to = keys(at.index);
    std::uint64_t* const full = key_full(at.index);
    barrier_wait(key_empty(at.index), at.parity ^ 1);
    barrier_arrive_expect(full, stage_bytes);
    for (int i = 0; i < key_boxes; ++i)
      tma_load(to + i * rows * key_row, task.map_of(problem.k), key_corner(task, tile, i * 64), full);
    for (int i = 0; i < value_boxes; ++i)
      tma_load(to + key_bytes + i * rows * value_row, task.map_of(problem.v), key_corner(task, tile, i * 64), full);
    at.advance(problem.stages);
  }
};

}  // namespace longstride::kernels::cuda::sm90
