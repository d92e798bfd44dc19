// Attention backward over a band, for heads larger than 32, where tiles need so much shared memory that only one block
// fits a multiprocessor. The products of a pair of tiles, their order and their bits are those of
// band_backward_large_kernel.cuh, but a block has two warpgroups, so that two pairs are in progress at once.
//
// The key tiles of a run go to the two warpgroups alternately, each with its own dK and dV. A query tile's dQ is summed
// in the order of key tiles: key tile m adds to it after key tile m - 1, which the other warpgroup has. Only the last
// product of a pair, dS K, waits for this turn. So one warpgroup falls one pair behind the other, and if key tiles have
// at least three query tiles, neither waits again. A third warpgroup loads tiles and computes the statistics of query
// tiles.
//
// Turns: a key tile takes `reach` steps, step d with query tile m + d. Step d waits until key tile m - 1 has completed
// step d + 1, which has the same query tile. Steps without a pair (at both ends of a run, and at the end of a block)
// wait and arrive like the others, so that:
//  - Nothing deadlocks. Step (m, d) waits for steps of a smaller m, or of the same m and a smaller d. That includes
//    waiting for room: a query tile's slot is free after step 0 of the key tile `slots` before it (slots >= reach - 1),
//    and a key tile's stage after the key tile `key_stages` before it. The warpgroup that loads never waits for one
//    thing while it could do another.
//  - No phase is mistaken for the next but one, of equal parity: (m + 2, d) follows (m + 2, d - 1), which waits for
//    (m + 1, d), which follows (m + 1, d - 1), which waits for (m, d).
//  - Step 0 of key tile m is the last use of query tile m and of the room of its dQ.
#pragma once
#include <cstddef>
#include <cstdint>

#include "kernels/attention/sm90/band/band_backward_large_math.cuh"

namespace longstride::kernels::cuda::sm90 {

template <class T, int KeySize, int ValueSize>
struct BandBackwardWide : BandBackwardLargeMath<T, KeySize, ValueSize> {
  using Common = BandBackwardLargeMath<T, KeySize, ValueSize>;
  using Common::key_bytes, Common::tile_bytes, Common::ds_bytes, Common::dq_bytes, Common::value_boxes;
  using Common::problem, Common::shared, Common::task, Common::thread, Common::lane, Common::warp;
  using Common::rows;
  using typename Common::OutputRow, typename Common::Seen, typename Common::Statistics;
  static constexpr int groups = 2, key_stages = 3;  // a key tile ahead of the warpgroups' two
  static constexpr int block_threads = (groups + 1) * warpgroup_threads;
  static constexpr int least_reach = 3;  // with less, the warpgroups would wait for each other
  // Per thread: as many as the block begins with, three times 168.
  static constexpr int walking_registers = 224, serving_registers = 56;

  // Shared memory, from a multiple of 1024 bytes.
  struct SharedLayout {
    int keys = 0, ds = 0, dq = 0, statistics = 0, barriers = 0, end = 0;

    constexpr SharedLayout(int slots, int reach) {
      keys = slots * tile_bytes;
      ds = keys + key_stages * tile_bytes;
      dq = ds + groups * ds_bytes;
      statistics = dq + (reach - 1) * dq_bytes;
      barriers = statistics + slots * static_cast<int>(sizeof(Statistics));
      end = barriers + (3 * slots + 2 * key_stages + groups * (reach - 1)) * 8;
    }
  };
  static constexpr std::size_t shared_bytes(int slots, int reach) {
    return static_cast<std::size_t>(SharedLayout(slots, reach).end) + 1024;
  }

  const SharedLayout at;
  const int group;  // the warpgroup; `groups`: the one that loads

  __device__ BandBackwardWide(const BandBackwardProblem& p, const BandBackwardLargeTask& t, char* memory)
      : Common(p, t, memory, this_thread() % warpgroup_threads),
        at(p.slots, p.reach),
        group(uniform(this_warpgroup())) {}

  // ---- Barriers ----

  // Where data pass between warpgroups by ordinary loads and stores (statistics and partial dQ), every thread arrives
  // itself, because racecheck does not accept an arrival on behalf of another thread (backward_kernel.cuh). Key tiles
  // are read by matrix products alone, so one thread arrives for its warp.
  __device__ std::uint64_t* query_full(int slot) const {
    return reinterpret_cast<std::uint64_t*>(shared + at.barriers) + slot;
  }
  __device__ std::uint64_t* query_empty(int slot) const { return query_full(problem.slots + slot); }
  __device__ std::uint64_t* statistics_full(int slot) const { return query_full(2 * problem.slots + slot); }
  __device__ std::uint64_t* key_full(int stage) const { return query_full(3 * problem.slots + stage); }
  __device__ std::uint64_t* key_empty(int stage) const { return key_full(key_stages + stage); }
  // For steps 1 to reach - 1 of a warpgroup's key tile.
  __device__ std::uint64_t* turn(int of_group, int step) const {
    return key_full(2 * key_stages + of_group * (problem.reach - 1) + step - 1);
  }
  __device__ void init_barriers() const {
    for (int i = 0; i < problem.slots; ++i) {
      barrier_init(query_full(i), 1);
      barrier_init(query_empty(i), warpgroup_threads);
      barrier_init(statistics_full(i), warpgroup_threads);
    }
    for (int i = 0; i < key_stages; ++i) {
      barrier_init(key_full(i), 1);
      barrier_init(key_empty(i), warpgroup_warps);
    }
    for (int i = 0; i < groups; ++i)
      for (int step = 1; step < problem.reach; ++step) barrier_init(turn(i, step), warpgroup_threads);
    barrier_init_fence();
  }
  // A barrier of the warpgroup's threads.
  __device__ void sync_group() const { named_barrier_sync(1 + group, warpgroup_threads); }

  __device__ Statistics& statistics(int slot) const {
    return reinterpret_cast<Statistics*>(shared + at.statistics)[slot];
  }
  __device__ std::int32_t first_key() const { return problem.shape.low(task.begin * rows) / rows; }

  // ---- The warpgroup that loads ----

  // The query tile must have arrived.
  __device__ void compute_statistics(std::int32_t tile, int slot) const {
    const OutputRow output = this->read_output(task, tile * rows);
    this->write_statistics(output, shared + slot * tile_bytes + key_bytes, statistics(slot));
  }

  // Does whatever can be done, in any order: it never waits for one thing while another could be done. The first warp
  // loads, all compute statistics.
  __device__ void serve() const {
    const bool loads = warp == 0;
    const std::int32_t query_end = problem.shape.end_tile(task.end - 1, task.length);
    std::int32_t key = first_key(), query = task.begin, known = task.begin;  // next to load, load, and compute
    RingSlot stage, slot, known_slot;
    while (known < query_end || (loads && key < task.end)) {
      bool idle = true;
      if (loads && query < query_end && this->passed(query_empty(slot.index), slot.parity ^ 1)) {
        if (lane == 0) {
          this->load(shared + slot.index * tile_bytes, problem.q, problem.dout, query, query_full(slot.index));
          for (int i = 0; i < value_boxes; ++i) tma_prefetch(this->map_of(problem.o), this->corner(query, i));
        }
        ++query;
        slot.advance(problem.slots);
        idle = false;
      }
      if (loads && key < task.end && this->passed(key_empty(stage.index), stage.parity ^ 1)) {
        if (lane == 0)
          this->load(shared + at.keys + stage.index * tile_bytes, problem.k, problem.v, key, key_full(stage.index));
        ++key;
        stage.advance(key_stages);
        idle = false;
      }
      if (known < query_end && this->passed(query_full(known_slot.index), known_slot.parity)) {
        compute_statistics(known, known_slot.index);
        barrier_arrive(statistics_full(known_slot.index));
        ++known;
        known_slot.advance(problem.slots);
        idle = false;
      }
      if (idle) __nanosleep(64);
    }
  }

  // ---- A warpgroup's key tiles ----

  // The partial dQ of a tile, four elements at a time so that a warp accesses 128 contiguous bytes. Both warpgroups'
  // threads of the same number own the same elements.
  __device__ float4* partial(int slot) const {
    return reinterpret_cast<float4*>(shared + at.dq + slot * dq_bytes) + thread;
  }

  // Step d of the warpgroup's key tile number `lap`. A fresh barrier counts as having completed a phase of parity 1, so
  // the run's first key tile waits for nothing.
  __device__ void await_turn(int step, std::uint32_t lap) const {
    if (step + 1 < problem.reach) barrier_wait(turn(1 - group, step + 1), (lap + 1 - group) & 1);
  }
  __device__ void pass_turn(int step) const {
    if (step > 0) barrier_arrive(turn(group, step));
  }
  __device__ void skip_steps(int from, int to, std::uint32_t lap) const {
    for (int step = from; step < to; ++step) {
      await_turn(step, lap);
      pass_turn(step);
    }
  }

  __device__ void walk() const {
    const BandShape& shape = problem.shape;
    const float rate = problem.scale * log2_e;
    const int partials = problem.reach - 1;
    char* const ds = shared + at.ds + group * ds_bytes;
    std::int32_t own = task.begin;       // the first query tile that sees this or a later key tile
    RingSlot own_slot, own_part, stage;  // the parity of own_part has no meaning
    stage.advance(group, key_stages);
    const std::int32_t first = first_key();
    std::uint32_t lap = 0;
    for (std::int32_t key = first + group; key < task.end; key += groups, ++lap) {
      const bool owned = key >= task.begin;
      const char* const keys = shared + at.keys + stage.index * tile_bytes;
      const Seen seen = this->seen_of(key);
      const std::int32_t end =
          owned ? shape.end_tile(key, task.length) : min(shape.end_tile(key, task.length), task.end);
      const std::int32_t fresh_from = key > first ? shape.end_tile(key - 1, task.length) : task.begin;
      const std::int32_t passed_by = max(key, task.begin) - own;
      own += passed_by;
      own_slot.advance(passed_by, problem.slots);
      own_part.advance(passed_by, partials);
      float dk[KeySize / 2] = {}, dv[ValueSize / 2] = {};
      barrier_wait(key_full(stage.index), stage.parity);
      skip_steps(0, own - key, lap);
      RingSlot slot = own_slot;
      int part = own_part.index;
      for (std::int32_t query = own; query < end; ++query) {
        const char* const queries = shared + slot.index * tile_bytes;
        const char* const dout = queries + key_bytes;
        const Statistics& of = statistics(slot.index);
        float s[rows / 2], dp[rows / 2];
        barrier_wait(query_full(slot.index), slot.parity);
        wgmma_fence();
        multiply_tiles<T, KeySize>(s, keys, queries);
        multiply_tiles<T, ValueSize>(dp, keys + key_bytes, dout);
        barrier_wait(statistics_full(slot.index), slot.parity);
        wgmma_wait<1>();
        wgmma_hold(s);
        const std::int32_t begin = query * rows;
        std::uint32_t weights[4][4];
        if (seen.first + 15 <= begin && seen.first_end >= begin + rows)
          this->template weigh_and_pack<true>(s, weights, rate, of, seen, begin);
        else
          this->template weigh_and_pack<false>(s, weights, rate, of, seen, begin);
        if (owned) {
          this->template add_product<ValueSize>(dv, weights, dout);
          wgmma_wait<1>();
        } else {
          wgmma_wait<0>();
        }
        wgmma_hold(dp);
        this->differentiate(dp, s, of);
        std::uint32_t ds_weights[4][4];
        this->pack_weights(ds_weights, dp);
        if (owned) this->template add_product<KeySize>(dk, ds_weights, queries);
        const bool yields = query < task.end;
        if (yields) {
          sync_group();  // every warp's previous dS K is complete
          this->write_ds(ds, ds_weights);
          sync_group();
        }
        await_turn(query - key, lap);
        if (yields) {
          float dq[KeySize / 2] = {};
          if (query < fresh_from) this->read_partial(dq, partial(part));
          this->add_query_gradient(dq, ds, keys, true);
          wgmma_wait<0>();
          wgmma_hold(dq);
          if (query == key)
            this->template store<KeySize>(problem.dq, query, dq, problem.scale);
          else
            this->write_partial(partial(part), dq);
        } else {
          wgmma_wait<0>();
        }
        wgmma_hold(dk);
        wgmma_hold(dv);
        pass_turn(query - key);
        if (query == key) barrier_arrive(query_empty(slot.index));
        slot.advance(problem.slots);
        part = next_slot(part, partials);
      }
      __syncwarp();
      if (lane == 0) barrier_arrive(key_empty(stage.index));
      skip_steps(end - key, problem.reach, lap);
      if (owned) {
        this->template store<KeySize>(problem.dk, key, dk, problem.scale);
        this->template store<ValueSize>(problem.dv, key, dv, 1.0f);
      }
      stage.advance(groups, key_stages);
    }
  }
};

template <class T, int KeySize, int ValueSize>
__global__ void __launch_bounds__(BandBackwardWide<T, KeySize, ValueSize>::block_threads, 1)
    backward_band_wide(const __grid_constant__ BandBackwardProblem problem) {
  extern __shared__ char memory[];
  BandBackwardLargeTask task;
  if (!task.find(problem)) return;
  char* const shared = memory + bytes_to_tile(memory);
  using Band = BandBackwardWide<T, KeySize, ValueSize>;
  const Band band(problem, task, shared);
  if (threadIdx.x == 0) band.init_barriers();
  __syncthreads();
  if (band.group == Band::groups) {
    registers_give<Band::serving_registers>();
    band.serve();
  } else {
    registers_take<Band::walking_registers>();
    band.walk();
  }
}

}  // namespace longstride::kernels::cuda::sm90
