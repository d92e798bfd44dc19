// Attention backward over a band of three key tiles per query tile, for heads of 33 to 64. The products, their order
// and their bits are those of band_backward_large_kernel.cuh; the division of work is that of the kernel for small
// heads (band_backward_small_kernel.cuh), with two walkers: key tiles go to them alternately, each has its own dK and
// dV, and hands dS over to a third warpgroup. That one serves: it loads tiles, computes the statistics of query tiles,
// and computes dQ, one query tile after the other, in one chain of products over all key tiles that it sees.
//
// A walker's dS goes through a ring of its own. The walker makes it key tile by key tile, and the server reads it query
// tile by query tile. With at most three query tiles per key tile both orders are the same: a walker's next key tile is
// two further, and what it sees begins with the last query tile of the one before.
//
// Nothing deadlocks. What precedes a pair of query tile q in its walker's order are pairs of query tiles up to q. These
// need tiles up to q, whose room is free once both walkers have passed q - slots, statistics, which the server has
// `lead` tiles before dQ, and room for dS, which is free once dQ of q - 1 is done. The server waits for dS of q, and
// for a query tile whose slot every walker passes before its dS of q; while it waits, its first two warps load.
#pragma once
#include <cstdint>

#include "kernels/attention/sm90/band/band_backward_served_block.cuh"

namespace longstride::kernels::cuda::sm90 {

template <class T>
struct BandBackwardServedWalker : BandBackwardServedBlock<T> {
  using Block = BandBackwardServedBlock<T>;
  using Block::key_bytes, Block::rows, Block::problem, Block::served, Block::lane, Block::warp, Block::task,
      Block::group;
  using Block::walkers, Block::key_stages, Block::value_stages, Block::rooms;
  using typename Block::Seen, typename Block::Statistics;

  __device__ explicit BandBackwardServedWalker(const Block& block) : Block(block) {}

  // The walker has no more use for query tiles from `passed` to `to`, all of which have arrived.
  __device__ void pass(std::int32_t& passed, std::int32_t to) const {
#pragma unroll 1
    for (; passed < to; ++passed) barrier_arrive(this->query_empty(this->slot_of(passed).index));
  }
  __device__ void hand_over(const std::uint32_t (&ds)[4][4], RingSlot& room) const {
    const int index = group * rooms + room.index;
    barrier_wait(this->ds_empty(index), room.parity ^ 1);
    this->write_ds(this->ds_tile(index), ds);
    __syncwarp();
    if (lane == 0) barrier_arrive(this->ds_full(index));
    room.advance(rooms);
  }

  // Stores a warp's rows of a gradient in shared memory, in TMA's order, from where they go to memory.
  __device__ void put(char* tile, const float (&values)[served_head / 2], float factor) const {
    char* const to = tile + warp * 16 * 128;
#pragma unroll
    for (int j = 0; j < served_head / 8; j += 2) {
      const int within = lane % 16 * 128 + (j + lane / 16) * 16, swizzled = within ^ (within >> 7) % 8 << 4;
      const float* d = values + 4 * j;
      store_matrices(to + swizzled, pack<T>(d[0] * factor, d[1] * factor), pack<T>(d[2] * factor, d[3] * factor),
                     pack<T>(d[4] * factor, d[5] * factor), pack<T>(d[6] * factor, d[7] * factor));
    }
  }
  // dV takes the place of the values, whose last product is done, and dK that of the next dS.
  __device__ void store(std::int32_t key, const float (&dk)[served_head / 2], const float (&dv)[served_head / 2],
                        char* values, const RingSlot& room) const {
    const int index = group * rooms + room.index;
    char* const tile = this->ds_tile(index);
    barrier_wait(this->ds_empty(index), room.parity ^ 1);
    sync();
    put(tile, dk, problem.scale);
    put(values, dv, 1.0f);
    proxy_fence();
    __syncwarp();
    if (lane != 0) return;
    if (key * rows + warp * 16 < task.length) {
      const Coordinates corner = this->corner(key, 0, warp * 16);
      tma_store(this->map_of(served.dk_maps), corner, tile + warp * 16 * 128);
      tma_store(this->map_of(served.dv_maps), corner, values + warp * 16 * 128);
    }
    store_commit();
  }
  // Waits until what was stored has left shared memory.
  __device__ void forget() const {
    if (lane == 0) store_wait<0>();
    sync();
  }
  __device__ void release_values(int stage) const {
    if (lane == 0) barrier_arrive(this->value_empty(stage));
  }
  // A barrier of the walker's threads.
  __device__ void sync() const { named_barrier_sync(2 + group, warpgroup_threads); }

  __device__ void walk() const {
    const float rate = problem.scale * log2_e;
    const std::int32_t first = this->first_key(task.begin);
    std::int32_t passed = task.begin;
    RingSlot stage, value_stage, room;
    int leaving = -1;  // the stage of values from which a gradient is being stored
    stage.advance(group, key_stages);
    value_stage.advance(group, value_stages);
    for (std::int32_t key = first + group; key < task.end; key += walkers) {
      const bool owned = key >= task.begin;
      const char* const keys = this->key_tile(stage.index);
      char* const values = this->value_tile(value_stage.index);
      const Seen seen = this->seen_of(key);
      const std::int32_t end = owned ? this->query_end(key) : min(this->query_end(key), task.end);
      float dk[served_head / 2] = {}, dv[served_head / 2] = {};
      barrier_wait(this->key_full(stage.index), stage.parity);
      barrier_wait(this->value_full(value_stage.index), value_stage.parity);
      for (std::int32_t query = max(key, task.begin); query < end; ++query) {
        const RingSlot slot = this->slot_of(query);
        const char* const queries = this->query_tile(slot.index);
        const char* const dout = queries + key_bytes;
        const Statistics& of = this->statistics(slot.index);
        float s[rows / 2], dp[rows / 2];
        barrier_wait(this->query_full(slot.index), slot.parity);
        wgmma_fence();
        multiply_tiles<T, served_head>(s, keys, queries);
        multiply_tiles<T, served_head>(dp, values, dout);
        barrier_wait(this->statistics_full(slot.index), slot.parity);
        wgmma_wait<1>();
        wgmma_hold(s);
        pass(passed, min(query, key + walkers));
        const std::int32_t begin = query * rows;
        if (seen.first + 15 <= begin && seen.first_end >= begin + rows)
          this->template weigh<true>(s, rate, of, seen, begin);
        else
          this->template weigh<false>(s, rate, of, seen, begin);
        std::uint32_t weights[4][4];
        if (owned) {
          this->pack_weights(weights, s);
          this->template add_product<served_head>(dv, weights, dout);
          wgmma_wait<1>();
        } else {
          wgmma_wait<0>();
        }
        wgmma_hold(dp);
        this->differentiate(dp, s, of);
        std::uint32_t ds_weights[4][4];
        this->pack_weights(ds_weights, dp);
        if (leaving >= 0) {  // here, as the products before leave no registers for it
          forget();
          release_values(leaving);
          leaving = -1;
        }
        if (owned) this->template add_product<served_head>(dk, ds_weights, queries);
        if (query < task.end) hand_over(ds_weights, room);
        wgmma_wait<0>();
        wgmma_hold(dk);
        wgmma_hold(dv);
      }
      pass(passed, min(end, key + walkers));
      if (owned) {
        store(key, dk, dv, values, room);
        leaving = value_stage.index;
      } else {
        __syncwarp();
        release_values(value_stage.index);
      }
      stage.advance(walkers, key_stages);
      value_stage.advance(walkers, value_stages);
    }
    if (lane == 0) store_wait<0>();
  }
};

template <class T>
struct BandBackwardServedServer : BandBackwardServedBlock<T> {
  using Block = BandBackwardServedBlock<T>;
  using Block::key_bytes, Block::value_bytes, Block::rows;
  using Block::problem, Block::lane, Block::warp, Block::task;
  using Block::walkers, Block::lead, Block::key_stages, Block::value_stages, Block::rooms;
  using typename Block::OutputRow;

  __device__ explicit BandBackwardServedServer(const Block& block) : Block(block) {}

  // ---- Loads: of query tiles by the first warp, of keys and values by the second ----

  // The next tiles to load. Key tiles below keys_until have room.
  struct Loads {
    std::int32_t query, query_end, key, keys_until, value;
    int key_stage = 0;
    RingSlot value_stage = {};
  };
  __device__ void load_query(Loads& next) const {
    const RingSlot slot = this->slot_of(next.query);
    if (next.query >= next.query_end || !this->passed(this->query_empty(slot.index), slot.parity ^ 1)) return;
    if (lane == 0) {
      this->load(this->query_tile(slot.index), problem.q, problem.dout, next.query, this->query_full(slot.index));
      tma_prefetch(this->map_of(problem.o), this->corner(next.query, 0));
    }
    ++next.query;
  }
  __device__ void load_key(Loads& next) const {
    if (next.key >= min(next.keys_until, task.end)) return;
    if (lane == 0) {
      std::uint64_t* const full = this->key_full(next.key_stage);
      barrier_arrive_expect(full, key_bytes);
      tma_load(this->key_tile(next.key_stage), this->map_of(problem.k), this->corner(next.key, 0), full);
    }
    ++next.key;
    next.key_stage = next_slot(next.key_stage, key_stages);
  }
  __device__ void load_value(Loads& next) const {
    const RingSlot& stage = next.value_stage;
    if (next.value >= task.end || !this->passed(this->value_empty(stage.index), stage.parity ^ 1)) return;
    if (lane == 0) {
      std::uint64_t* const full = this->value_full(stage.index);
      barrier_arrive_expect(full, value_bytes);
      tma_load(this->value_tile(stage.index), this->map_of(problem.v), this->corner(next.value, 0), full);
    }
    ++next.value;
    next.value_stage.advance(value_stages);
  }
  // Loads a tile of each kind, if there is room.
  __device__ void load_some(Loads& next) const {
    if (warp == 0) load_query(next);
    if (warp == 1) {
      load_key(next);
      load_value(next);
    }
  }
  // Waits; the warps that load do so meanwhile.
  __device__ void await(std::uint64_t* barrier, std::uint32_t parity, Loads& next) const {
    if (warp >= 2) return barrier_wait(barrier, parity);
    while (!this->passed(barrier, parity)) load_some(next);
  }

  // ---- Statistics ----

  __device__ void compute_statistics(std::int32_t query, const OutputRow& output, Loads& next) const {
    const RingSlot slot = this->slot_of(query);
    await(this->query_full(slot.index), slot.parity, next);
    this->write_statistics(output, this->query_tile(slot.index) + key_bytes, this->statistics(slot.index));
    barrier_arrive(this->statistics_full(slot.index));
  }

  // ---- dQ ----

  // The key tiles from the first that the next query tile sees, whose walker it is, and where the walkers' dS is next.
  struct Keys {
    std::int32_t first;
    int stage, walker;
    RingSlot room[walkers];
  };
  __device__ void leave_keys(Keys& keys, std::int32_t first) const {
#pragma unroll 1
    for (; keys.first < first; ++keys.first) {
      keys.stage = next_slot(keys.stage, key_stages);
      keys.walker ^= 1;
    }
  }
  __device__ void multiply(float (&dq)[served_head / 2], std::int32_t query, Keys& keys, Loads& next) const {
    int stage = keys.stage, walker = keys.walker;
#pragma unroll 1
    for (std::int32_t key = keys.first; key <= query; ++key) {
      RingSlot room = walker == 0 ? keys.room[0] : keys.room[1];
      const int index = walker * rooms + room.index;
      await(this->ds_full(index), room.parity, next);
      this->add_query_gradient(dq, this->ds_tile(index), this->key_tile(stage), key > keys.first);
      room.advance(rooms);
      (walker == 0 ? keys.room[0] : keys.room[1]) = room;
      stage = next_slot(stage, key_stages);
      walker ^= 1;
    }
  }
  // Says that a query tile's dS has been read: of every walker the last rooms before its next one.
  __device__ void release(std::int32_t query, const Keys& keys) const {
    if (lane != 0) return;
    int walker = keys.walker;
    for (std::int32_t key = keys.first; key <= query; ++key) {
      // A walker's second key tile from here, if there is one, has the room before its next, the first the one before.
      const int back = key + walkers <= query ? 2 : 1;
      const int room = (walker == 0 ? keys.room[0] : keys.room[1]).index;
      barrier_arrive(this->ds_empty(walker * rooms + (room + rooms - back) % rooms));
      walker ^= 1;
    }
  }

  // One step computes dQ of a query tile, and the statistics of the one that is `lead` further.
  __device__ void serve() const {
    const std::int32_t first = this->first_key(task.begin), end = this->query_end(task.end - 1);
    Loads next{task.begin, end, first, first + key_stages, first};
    Keys keys{first, 0, 0, {}};
#pragma unroll 1
    for (std::int32_t query = task.begin - lead; query < task.end; ++query) {
      const OutputRow output = this->read_output(task, (query + lead) * rows);  // arrives during the products
      if (query >= task.begin) {
        float dq[served_head / 2];
        multiply(dq, query, keys, next);
        wgmma_wait<0>();
        wgmma_hold(dq);
        release(query, keys);
        this->template store<served_head>(problem.dq, query, dq, problem.scale);
        leave_keys(keys, max(this->first_key(query + 1), first));
        named_barrier_sync(1, warpgroup_threads);  // all warps have read the key tiles before keys.first
        next.keys_until = keys.first + key_stages;
      }
      load_some(next);
      if (query + lead < end) compute_statistics(query + lead, output, next);
    }
  }
};

template <class T>
__global__ void __launch_bounds__(BandBackwardServedBlock<T>::block_threads, 1)
    backward_band_served(const __grid_constant__ BandBackwardServedProblem problem) {
  using Block = BandBackwardServedBlock<T>;
  extern __shared__ char memory[];
  BandBackwardLargeTask task;
  if (!task.find(problem)) return;
  char* const shared = memory + bytes_to_tile(memory);
  const Block block(problem, task, shared);
  if (threadIdx.x == 0) block.init_barriers();
  __syncthreads();
  if (block.group == Block::walkers) {
    registers_give<Block::serving_registers>();
    BandBackwardServedServer<T>(block).serve();
  } else {
    registers_take<Block::walking_registers>();
    BandBackwardServedWalker<T>(block).walk();
  }
}

}  // namespace longstride::kernels::cuda::sm90
