// Attention backward whose dQ is summed in global memory in turns (long_band_walk.h, joined_walk.h), for heads of up to
// 64. Per pair of 64 keys and 64 queries,
//     S^T = k q^T,  P = exp(scale S - lse),  dP^T = v dO^T,  dS = P (dP - delta),  dV += P dO,  dK += dS q,
//     dQ^T += k^T dS^T
// The only block of a multiprocessor has four warpgroups:
//   0 and 1  own 64 keys each of the task's key tile, and compute S to dK. They hand dS over in shared memory.
//   2        multiplies the keys, transposed, with dS. It hands dQ of a query tile over in shared memory, as its
//            registers hold it, or adds the last contribution to the sum and stores dQ.
//   3        has a warp that takes tasks and loads by TMA, whose lanes load lse and delta, and one thread per buffer of
//            dQ, which waits for the turn and adds the buffer to the sums.
// Every sum has one order, dQ that of keys, dK and dV that of queries, whichever block computes a task.
#pragma once
#include <cstddef>
#include <cstdint>

#include "kernels/attention/sm90/long_band/long_band_math.cuh"
#include "kernels/gpu/global.cuh"

namespace longstride::kernels::cuda::sm90 {

// Task: which keys and queries a task has, and whose turn it is (turn_task.cuh, joined_task.cuh).
template <class T, class Task>
struct BackwardTurns : LongBandMath<T> {
  using Common = LongBandMath<T>;
  using Common::key_bytes, Common::tile_bytes, Common::ds_bytes, Common::dq_bytes, Common::rows;
  using Common::shared, Common::thread, Common::lane, Common::warp;
  using Common::size, Common::own_keys, Common::arrive_for_warp;
  using typename Common::Statistics, typename Common::Gradients, typename Common::Position;
  using Problem = typename Task::Problem;
  using Ticket = typename Task::Ticket;
  using Seen = typename Task::template Seen<LongBandMath<T>>;
  static constexpr int query_stages = 4, key_stages = 2, ds_stages = 2, sum_buffers = 2;

  struct Control {
    Statistics statistics[query_stages];
    Ticket tickets[key_stages];
    std::uint64_t query_full[query_stages], query_empty[query_stages];
    std::uint64_t key_full[key_stages], key_empty[key_stages];
    std::uint64_t value_full, value_empty, ds_full[2][ds_stages], ds_empty[2][ds_stages];
    std::uint64_t sum_ready[sum_buffers], sum_full[sum_buffers];
  };
  // Shared memory, from a multiple of 1024 bytes. Keys, values and dS are two tiles of 64 keys.
  static constexpr int keys_at = 0, values_at = keys_at + key_stages * 2 * key_bytes,
                       queries_at = values_at + 2 * key_bytes, ds_at = queries_at + query_stages * tile_bytes,
                       sums_at = ds_at + ds_stages * 2 * ds_bytes, control_at = sums_at + sum_buffers * dq_bytes;
  static constexpr std::size_t shared_bytes = control_at + sizeof(Control) + tile_alignment;
  static_assert(shared_bytes <= shared_of_block);

  const Problem& problem;
  Task& task;
  Control& control;

  __device__ BackwardTurns(const Problem& p, Task& t, char* memory)
      : Common(p, t, memory, this_thread() % warpgroup_threads),
        problem(p),
        task(t),
        control(*reinterpret_cast<Control*>(memory + control_at)) {}

  // What passes through ordinary loads and stores has every thread arrive itself, because racecheck does not accept an
  // arrival on behalf of another thread (general/backward_kernel.cuh). What matrix products alone read has one per
  // warp.
  __device__ void init_barriers() const {
    for (int i = 0; i < query_stages; ++i) {
      barrier_init(&control.query_full[i], 1 + warp_threads);
      barrier_init(&control.query_empty[i], own_keys);
    }
    for (int i = 0; i < key_stages; ++i) {
      barrier_init(&control.key_full[i], 1);
      barrier_init(&control.key_empty[i], 3 * warpgroup_warps + sum_buffers);
    }
    barrier_init(&control.value_full, 1);
    barrier_init(&control.value_empty, own_keys);
    for (int half = 0; half < 2; ++half)
      for (int i = 0; i < ds_stages; ++i) {
        barrier_init(&control.ds_full[half][i], warpgroup_threads);
        barrier_init(&control.ds_empty[half][i], warpgroup_warps);
      }
    for (int i = 0; i < sum_buffers; ++i) {
      barrier_init(&control.sum_ready[i], 1);
      barrier_init(&control.sum_full[i], warpgroup_threads);
    }
    barrier_init_fence();
    proxy_fence();
  }

  __device__ char* keys(int stage) const { return shared + keys_at + stage * 2 * key_bytes; }
  __device__ char* queries(int stage) const { return shared + queries_at + stage * tile_bytes; }
  __device__ char* ds(int stage, int half) const { return shared + ds_at + (2 * stage + half) * ds_bytes; }
  __device__ float4* sums(int buffer) const { return reinterpret_cast<float4*>(shared + sums_at + buffer * dq_bytes); }

  // Whole warps: waits for the next task, or returns false after the last. Lane 0 reads for all, as it is the one that
  // arrives at the end.
  __device__ bool next_task(const RingSlot& key) const {
    barrier_wait(&control.key_full[key.index], key.parity);
    int4 a = {}, b = {};
    if (lane == 0) {
      const auto* const from = reinterpret_cast<const int4*>(&control.tickets[key.index]);
      a = from[0];
      b = from[1];
    }
    task.take(problem,
              {uniform(a.x), uniform(a.y), uniform(a.z), uniform(a.w), uniform(b.x), uniform(b.y), uniform(b.z), 1});
    return uniform(b.w) != 0;
  }

  // ---- The warp that loads ----

  __device__ void load_own_rows(char* to, const RowMaps& maps, std::uint64_t* full) const {
    this->load_rows(
        to, maps, [&](int half) { return task.key_corner(*this, half); }, full);
  }
  __device__ void load_task_queries(RingSlot& query) const {
    const std::int64_t row = this->first_row();
    for (std::int32_t tile = task.end(problem) - 1; tile >= task.begin(); --tile) {
      const int i = query.index;
      this->load_queries(problem, row, tile, queries(i), control.statistics[i], &control.query_empty[i],
                         query.parity ^ 1, &control.query_full[i]);
      query.advance(query_stages);
    }
  }
  // Takes tasks in order, so that a block with a later task waits for blocks at work only.
  __device__ void load_all() const {
    RingSlot key, query, value;
    for (;;) {
      unsigned index = 0;
      if (lane == 0) index = atomicAdd(problem.tasks_taken, 1u);
      index = __shfl_sync(~0u, index, 0);
      barrier_wait(&control.key_empty[key.index], key.parity ^ 1);
      if (index >= problem.tasks) {
        if (lane == 0) {
          control.tickets[key.index].valid = 0;
          barrier_arrive(&control.key_full[key.index]);
        }
        return;
      }
      const Ticket ticket = task.ticket(problem, index);
      task.take(problem, ticket);
      if (lane == 0) control.tickets[key.index] = ticket;
      task.load_keys(*this, keys(key.index), &control.key_full[key.index]);
      key.advance(key_stages);
      barrier_wait(&control.value_empty, value.parity ^ 1);
      task.load_values(*this, shared + values_at, &control.value_full);
      value.advance(1);
      __syncwarp();
      load_task_queries(query);
    }
  }

  // ---- One thread per buffer of dQ ----

  __device__ void wait_for_turn(const unsigned* counter, unsigned turn) const {
    while (load_acquire(counter) != turn) __nanosleep(20);
    // What earlier turns wrote was written by TMA, as what follows here, but the wait was an ordinary access.
    proxy_fence_global();
  }
  // The contribution of a query tile, in one of the buffers.
  __device__ void take_turn(std::int32_t query, int buffer, std::uint32_t parity) const {
    const std::int32_t before = task.turn(problem, query);
    const bool is_last = task.is_last(problem, query), reads = is_last && before > 0;
    std::uint64_t* const ready = &control.sum_ready[buffer];
    if (!reads) barrier_arrive(ready);
    const std::int32_t place = problem.ring.place(task.lane, query);
    unsigned* const counter = problem.counters + place;
    float* const sum = problem.sums + static_cast<std::int64_t>(place) * (dq_bytes / 4);
    const unsigned first = problem.ring.first_turn(task.group, query);
    wait_for_turn(counter, first + static_cast<unsigned>(before));
    if (reads) {
      barrier_arrive_expect(ready, dq_bytes);
      bulk_load(sums(buffer), sum, dq_bytes, ready);
    }
    barrier_wait(&control.sum_full[buffer], parity);
    if (!is_last) {
      before == 0 ? bulk_store(sum, sums(buffer), dq_bytes) : bulk_add(sum, sums(buffer), dq_bytes);
      store_commit();
      store_complete();  // not only read: the next turn may come as soon as the counter says so
    }
    // The sums have been written, or read, by TMA; the counter is an ordinary access.
    proxy_fence_global();
    store_release(counter, is_last ? first + problem.ring.most_turns : first + static_cast<unsigned>(before) + 1);
  }
  __device__ void take_turns(int buffer) const {
    RingSlot key;
    int at = 0;
    std::uint32_t parity = 0;
    for (;;) {
      barrier_wait(&control.key_full[key.index], key.parity);
      const Ticket ticket = control.tickets[key.index];
      barrier_arrive(&control.key_empty[key.index]);
      if (ticket.valid == 0) return;
      key.advance(key_stages);
      task.take(problem, ticket);
      for (std::int32_t query = task.end(problem) - 1; query >= task.begin(); --query) {
        if (at == buffer) {
          take_turn(query, buffer, parity);
          parity ^= 1;
        }
        at = next_slot(at, sum_buffers);
      }
    }
  }

  // The fourth warpgroup.
  __device__ void serve() const {
    if (warp == 0)
      load_all();
    else if (warp <= sum_buffers && lane == 0)
      take_turns(warp - 1);
  }

  // ---- The warpgroup that computes dQ ----

  // dq^T = k^T dS^T, or += for the second half.
  __device__ void multiply_half(float (&dq)[size / 2], const char* k, int half, int stage) const {
    const std::uint64_t a = descriptor<128>(k + half * key_bytes), b = descriptor<128>(ds(stage, half));
    wgmma_fence();
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const std::uint32_t step = i * 16 * 128;
      wgmma_rows<T>(dq, advanced(a, step), advanced(b, step), half > 0 || i > 0);
    }
    wgmma_commit();
  }
  // dQ^T: rows are columns of dq. Each lane stores two packs of eight columns of four rows.
  __device__ void store_transposed(std::int32_t tile, const float (&dq)[size / 2]) const {
    const Gradient& gradient = problem.dq;
    T* const base =
        static_cast<T*>(gradient.data) + task.sequence * gradient.stride[0] + task.head * gradient.stride[2];
#pragma unroll
    for (int g = 0; g < 2; ++g) {
      const std::int32_t entry = tile * rows + 8 * (4 * g + lane % 4) + lane / 4;
      const bool there = entry < task.length;
      T* const row = base + (there ? task.position(entry) : 0) * gradient.stride[1];
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        const std::int32_t column = 16 * warp + 8 * r;
        std::uint32_t v[4];
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const float* d = dq + element_at(4 * g + i, r);
          v[i] = transposed(pack<T>(d[0] * problem.scale, d[1] * problem.scale));
        }
        transpose_quad(v);
        if (there && column < gradient.size) *reinterpret_cast<uint4*>(row + column) = {v[0], v[1], v[2], v[3]};
      }
    }
  }
  __device__ void finish_queries(float (&dq)[size / 2], std::int32_t query, int buffer) const {
    if (!task.is_first(problem, query)) {
      const float4* const from = sums(buffer) + thread;
#pragma unroll
      for (int i = 0; i < size / 8; ++i) {
        const float4 x = from[i * warpgroup_threads];
        dq[4 * i] += x.x, dq[4 * i + 1] += x.y, dq[4 * i + 2] += x.z, dq[4 * i + 3] += x.w;
      }
      proxy_fence();  // TMA fills the buffer again
    }
    barrier_arrive(&control.sum_full[buffer]);
    store_transposed(query, dq);
  }
  __device__ void sum_queries() const {
    RingSlot key, at, sum;
    while (next_task(key)) {
      const char* const k = keys(key.index);
      for (std::int32_t query = task.end(problem) - 1; query >= task.begin(); --query) {
        float dq[size / 2];
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          barrier_wait(&control.ds_full[half][at.index], at.parity);
          multiply_half(dq, k, half, at.index);
        }
        wgmma_wait<1>();
        arrive_for_warp(&control.ds_empty[0][at.index]);
        wgmma_wait<0>();
        wgmma_hold(dq);
        arrive_for_warp(&control.ds_empty[1][at.index]);
        at.advance(ds_stages);
        barrier_wait(&control.sum_ready[sum.index], sum.parity);
        if (task.is_last(problem, query)) {
          finish_queries(dq, query, sum.index);
        } else {
          this->write_partial(sums(sum.index) + thread, dq);
          proxy_fence();
          barrier_arrive(&control.sum_full[sum.index]);
        }
        sum.advance(sum_buffers);
      }
      arrive_for_warp(&control.key_empty[key.index]);
      key.advance(key_stages);
    }
  }

  // ---- A warpgroup with half of the task's keys ----

  // A task of one of the two warpgroups.
  struct Turn {
    Position& at;
    const OwnRows<T, rows, size, true>& values;
    Gradients& gradients;
    const Seen seen;
    const int half;
    const char* const own_keys;
  };

  // dS^T (keys, queries), as the registers hold it.
  __device__ void hand_over(Turn& turn, const std::uint32_t (&a)[4][4]) const {
    RingSlot& at = turn.at.ds;
    barrier_wait(&control.ds_empty[turn.half][at.index], at.parity ^ 1);
    const int matrix = lane / 8;
    char* const row = ds(at.index, turn.half) + (16 * warp + matrix % 2 * 8 + lane % 8) * 128;
#pragma unroll
    for (int i = 0; i < 4; ++i)
      store_matrices(row + ((2 * i + matrix / 2) ^ lane % 8) * 16, a[i][0], a[i][1], a[i][2], a[i][3]);
    proxy_fence();
    barrier_arrive(&control.ds_full[turn.half][at.index]);
    at.advance(ds_stages);
  }
  // Query tiles that do not see the warpgroup's keys.
  __device__ void skip(Turn& turn, std::int32_t tiles) const {
#pragma unroll 1
    for (; tiles > 0; --tiles) {
      barrier_wait(&control.query_full[turn.at.query.index], turn.at.query.parity);
      hand_over(turn, {});
      barrier_arrive(&control.query_empty[turn.at.query.index]);
      turn.at.query.advance(query_stages);
    }
  }
  __device__ void begin_scores(float (&s)[rows / 2], const Turn& turn, int stage) const {
    wgmma_fence();
    multiply_tiles<T, size>(s, turn.own_keys, queries(stage));
  }
  // A tile whose dS is in registers: its last product is issued with the first ones of the next.
  struct Held {
    std::uint32_t ds[4][4];
    int stage;
  };
  template <bool Holds>
  __device__ void pass_tile(Turn& turn, std::int32_t tile, Held& held) const {
    RingSlot& at = turn.at.query;
    const int stage = at.index;
    const char* const q = queries(stage);
    const Statistics& of = control.statistics[stage];
    barrier_wait(&control.query_full[stage], at.parity);
    at.advance(query_stages);
    float s[rows / 2], dp[rows / 2];
    if constexpr (Holds) this->template add_product<size>(turn.gradients.k, held.ds, queries(held.stage));
    begin_scores(s, turn, stage);
    turn.values.multiply(dp, descriptor<2 * size>(q + key_bytes));
    if constexpr (Holds) hand_over(turn, held.ds);
    wgmma_wait<1>();
    wgmma_hold(s);
    wgmma_hold(turn.gradients.k);
    if constexpr (Holds) barrier_arrive(&control.query_empty[held.stage]);
    held.stage = stage;
    task.weigh(*this, s, turn.seen, tile * rows, of);
    std::uint32_t weights[4][4];
    this->pack_weights(weights, s);
    this->template add_product<size>(turn.gradients.v, weights, q + key_bytes);
    wgmma_wait<1>();
    wgmma_hold(dp);
    this->differentiate(dp, s, of);
    this->pack_weights(held.ds, dp);
    wgmma_wait<0>();
    wgmma_hold(turn.gradients.v);
  }
  __device__ void finish(Turn& turn, Held& held) const {
    this->template add_product<size>(turn.gradients.k, held.ds, queries(held.stage));
    hand_over(turn, held.ds);
    wgmma_wait<0>();
    wgmma_hold(turn.gradients.k);
    barrier_arrive(&control.query_empty[held.stage]);
  }
  __device__ void pass_queries(Turn& turn) const {
    const std::int32_t begin = task.begin(problem, turn.half), end = task.end(problem, turn.half);
    skip(turn, task.end(problem) - end);
    std::int32_t tile = end - 1;
    if (tile >= begin) {
      Held held;
      pass_tile<false>(turn, tile, held);
#pragma unroll 1
      while (--tile >= begin) pass_tile<true>(turn, tile, held);
      finish(turn, held);
    }
    skip(turn, begin - task.begin());
  }

  __device__ void sum_keys(int half) const {
    Position at;
    OwnRows<T, rows, size, true> values;
    while (next_task(at.key)) {
      this->take_values(values, shared + values_at + half * key_bytes, &control.value_full, &control.value_empty,
                        at.value);
      Gradients gradients = {};
      wgmma_hold(gradients.k);  // zeros now, not between products
      wgmma_hold(gradients.v);
      Turn turn = {at, values, gradients, task.seen(*this, half), half, keys(at.key.index) + half * key_bytes};
      pass_queries(turn);
      arrive_for_warp(&control.key_empty[at.key.index]);
      at.key.advance(key_stages);
      task.store(*this, turn.seen, half, problem.dk, gradients.k, problem.scale);
      task.store(*this, turn.seen, half, problem.dv, gradients.v, 1.0f);
    }
  }
};

template <class T, class Task>
__global__ void __launch_bounds__(BackwardTurns<T, Task>::block_threads, 1)
    backward_turns(const __grid_constant__ typename Task::Problem problem) {
  extern __shared__ char memory[];
  Task task;
  const BackwardTurns<T, Task> band(problem, task, memory + bytes_to_tile(memory));
  run_warpgroups(band);
}

}  // namespace longstride::kernels::cuda::sm90
