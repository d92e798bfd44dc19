// Attention backward whose dQ is summed in global memory in turns (long_band_order.h, joined_order.h), for heads of up
// to 128. Per pair of 64 keys and 64 queries,
//     S^T = k q^T,  P = exp(scale S - lse),  dP^T = v dO^T,  dS = P (dP - delta),  dV += P dO,  dK += dS q,
//     dQ^T += k^T dS^T
// The only block of a multiprocessor has four warpgroups, or five for heads of up to 32:
//   two or three  own a strip of 64 keys each of the task's key tile, and compute S to dK. They hand dS over in shared
//                 memory.
//   the next      multiplies the keys, transposed, with dS. It hands dQ of a query tile over in shared memory, as its
//                 registers hold it, or adds the last contribution to the sum and stores dQ.
//   the last      has a warp that takes tasks and loads by TMA, whose lanes load lse and delta, and one thread per
//                 buffer of dQ, which waits for the turn and adds the buffer to the sums.
// Every sum has one order, dQ that of keys, dK and dV that of queries, whichever block computes a task.
#pragma once
#include <cstdint>
#include <type_traits>

#include "kernels/attention/sm90/long_band/turns_keys.cuh"
#include "kernels/attention/sm90/long_band/turns_lean_keys.cuh"
#include "kernels/attention/sm90/long_band/turns_narrow_keys.cuh"
#include "kernels/gpu/global.cuh"

namespace longstride::kernels::cuda::sm90 {

template <class T, class Task, int Size>
using KeysOfTurns =
    std::conditional_t<Size <= 32, TurnsNarrowKeys<T, Task, Size>,
                       std::conditional_t<Size <= 64, TurnsKeys<T, Task, Size>, TurnsLeanKeys<T, Task, Size>>>;

// Size: what heads are padded to, 32, 64 or 128. Task: turns_block.cuh.
template <class T, class Task, int Size>
struct BackwardTurns : KeysOfTurns<T, Task, Size> {
  using Block = TurnsBlock<T, Task, Size>;
  using KeysOfTurns<T, Task, Size>::KeysOfTurns;
  using Block::next_task, Block::arrive_for_warp;
  using Block::problem, Block::task, Block::control, Block::keys, Block::values, Block::queries, Block::ds, Block::sums;
  using Block::query_stages, Block::key_stages, Block::ds_stages, Block::sum_buffers, Block::value_stages;
  using Block::size, Block::strips, Block::rows, Block::key_row, Block::key_boxes, Block::key_bytes, Block::dq_bytes;
  using Block::thread, Block::lane, Block::warp;
  using typename Block::Problem, typename Block::Ticket;

  // ---- The warp that loads ----

  __device__ void load_query_tile(RingSlot& query, std::int32_t tile) const {
    const int i = query.index;
    this->load_queries(problem, this->first_row(), tile, queries(i), control.statistics[i], &control.query_empty[i],
                       query.parity ^ 1, &control.query_full[i]);
    query.advance(query_stages);
  }
  // Takes tasks in order, so that a block with a later task waits for blocks at work only.
  __device__ void load_all() const {
    RingSlot key, query, value;
    for (;;) {
      unsigned index = 0;
      if (lane == 0) index = atomicAdd(problem.tasks_taken, 1u);
      index = __shfl_sync(~0u, index, 0);
      if (index >= problem.tasks) {
        barrier_wait(&control.key_empty[key.index], key.parity ^ 1);
        if (lane == 0) {
          control.tickets[key.index].valid = 0;
          barrier_arrive(&control.key_full[key.index]);
        }
        return;
      }
      const Ticket ticket = task.ticket(problem, index);
      task.take(problem, ticket);
      std::int32_t tile = task.end(problem) - 1;
      const auto load_keys = [&] {
        barrier_wait(&control.key_empty[key.index], key.parity ^ 1);
        if (lane == 0) control.tickets[key.index] = ticket;
        task.load_keys(*this, keys(key.index), &control.key_full[key.index]);
        key.advance(key_stages);
      };
      // Where there is room for one task's keys, the next one's queries and values find room before its keys do.
      if constexpr (key_stages == 1)
        load_query_tile(query, tile--);
      else
        load_keys();
      barrier_wait(&control.value_empty[value.index], value.parity ^ 1);
      task.load_values(*this, values(value.index), &control.value_full[value.index]);
      value.advance(value_stages);
      if constexpr (key_stages == 1) load_keys();
      __syncwarp();
      for (; tile >= task.begin(); --tile) load_query_tile(query, tile);
    }
  }

  // ---- One thread per buffer of dQ ----

  __device__ void wait_for_turn(const unsigned* counter, unsigned turn) const {
    while (load_acquire(counter) != turn) __nanosleep(20);
    // Earlier turns wrote by TMA, as this one will, but the wait was an ordinary access.
    proxy_fence_global();
  }
  // The contribution of a query tile, in one of the buffers.
  __device__ void take_turn(std::int32_t query, int buffer, std::uint32_t parity) const {
    const std::int32_t before = task.turn(problem, query);
    const bool is_last = task.is_last(problem, query), reads = is_last && before > 0;
    std::uint64_t* const ready = &control.sum_ready[buffer];
    if (!reads) barrier_arrive(ready);
    const std::int32_t slot = problem.ring.slot(task.lane, query);
    unsigned* const counter = problem.counters + slot;
    float* const sum = problem.sums + static_cast<std::int64_t>(slot) * (dq_bytes / 4);
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

  // The last warpgroup.
  __device__ void serve() const {
    if (warp == 0)
      load_all();
    else if (warp <= sum_buffers && lane == 0)
      take_turns(warp - 1);
  }

  // ---- The warpgroup that computes dQ ----

  // A thread's share of a contribution, or of 64 columns of it.
  static constexpr bool is_transposed = Size >= 64;
  static constexpr int share = is_transposed ? 32 : rows * size / warpgroup_threads;
  using Share = float[share];

  // 64 columns of dq^T = k^T dS^T, or += for all strips of keys but the first. Of heads of 32, dq = dS k.
  __device__ void multiply_strip(Share& dq, const char* k, int strip, int stage) const {
    const std::uint64_t of_keys = descriptor<key_row>(k + strip * key_bytes), of_ds = descriptor<128>(ds(stage, strip));
    wgmma_fence();
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const std::uint64_t a = advanced(of_keys, i * 16 * key_row), b = advanced(of_ds, i * 16 * 128);
      wgmma_rows<T>(dq, is_transposed ? a : b, is_transposed ? b : a, strip > 0 || i > 0);
    }
    wgmma_commit();
  }
  // dQ^T: rows are 64 columns of dq, from the first one on. Each lane stores two packs of eight columns of four rows.
  __device__ void store_transposed(std::int32_t tile, const Share& dq, int first_column) const {
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
        const std::int32_t column = first_column + 16 * warp + 8 * r;
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
  // 64 columns of a query tile's contribution. `ends`: they are the last ones, so the buffer is complete, or read.
  __device__ void pass_on(Share& dq, std::int32_t query, int buffer, int box, bool ends) const {
    float4* const at = sums(buffer) + box * (rows * 64 / 4) + thread;
    std::uint64_t* const full = &control.sum_full[buffer];
    if (!task.is_last(problem, query)) {
      this->write_partial(at, dq);
      proxy_fence();
      if (ends) barrier_arrive(full);
      return;
    }
    if (!task.is_first(problem, query)) {
#pragma unroll
      for (int i = 0; i < share / 4; ++i) {
        const float4 x = at[i * warpgroup_threads];
        dq[4 * i] += x.x, dq[4 * i + 1] += x.y, dq[4 * i + 2] += x.z, dq[4 * i + 3] += x.w;
      }
      proxy_fence();  // TMA fills the buffer again
    }
    if (ends) barrier_arrive(full);
    if constexpr (is_transposed)
      store_transposed(query, dq, 64 * box);
    else
      this->template store<size>(problem.dq, query, dq, problem.scale);
  }
  __device__ void sum_queries() const {
    RingSlot key, at, sum;
    while (next_task(key)) {
      const char* const k = keys(key.index);
      for (std::int32_t query = task.end(problem) - 1; query >= task.begin(); --query) {
#pragma unroll 1
        for (int box = 0; box < key_boxes; ++box) {
          const bool ends = box + 1 == key_boxes;
          Share dq;
#pragma unroll
          for (int strip = 0; strip < strips; ++strip) {
            if (box == 0) barrier_wait(&control.ds_full[strip][at.index], at.parity);
            multiply_strip(dq, k + box * rows * key_row, strip, at.index);
            if (strip == 0) continue;
            wgmma_wait<1>();
            if (ends) arrive_for_warp(&control.ds_empty[strip - 1][at.index]);
          }
          wgmma_wait<0>();
          wgmma_hold(dq);
          if (ends) {
            arrive_for_warp(&control.ds_empty[strips - 1][at.index]);
            at.advance(ds_stages);
            // The only keys there is room for make way for the next ones before dQ waits for its turn.
            if (key_stages == 1 && query == task.begin()) arrive_for_warp(&control.key_empty[key.index]);
          }
          if (box == 0) barrier_wait(&control.sum_ready[sum.index], sum.parity);
          pass_on(dq, query, sum.index, box, ends);
        }
        sum.advance(sum_buffers);
      }
      if constexpr (key_stages > 1) arrive_for_warp(&control.key_empty[key.index]);
      key.advance(key_stages);
    }
  }
};

template <class T, class Task, int Size>
__global__ void __launch_bounds__(BackwardTurns<T, Task, Size>::block_threads, 1)
    backward_turns(const __grid_constant__ typename Task::Problem problem) {
  extern __shared__ char memory[];
  Task task;
  const BackwardTurns<T, Task, Size> band(problem, task, memory + bytes_to_tile(memory));
  run_warpgroups(band);
}

}  // namespace longstride::kernels::cuda::sm90
