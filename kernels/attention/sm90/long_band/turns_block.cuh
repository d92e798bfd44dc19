// The block of the kernel that sums dQ in turns (turns_kernel.cuh): its shared memory, and what its warpgroups share.
#pragma once
#include <cstddef>
#include <cstdint>

#include "kernels/attention/sm90/long_band/long_band_math.cuh"

namespace longstride::kernels::cuda::sm90 {

// Task: which keys and queries a task has, and whose turn it is (turn_task.cuh, joined_task.cuh).
template <class T, class Task, int Size>
struct TurnsBlock : LongBandMath<T, Size> {
  using Common = LongBandMath<T, Size>;
  using Common::key_bytes, Common::tile_bytes, Common::ds_bytes, Common::dq_bytes, Common::rows;
  using Common::shared, Common::thread, Common::lane, Common::warp;
  using Common::size, Common::strips, Common::own_keys, Common::arrive_for_warp;
  using typename Common::Statistics, typename Common::Gradients, typename Common::Position;
  using Problem = typename Task::Problem;
  using Ticket = typename Task::Ticket;
  using Seen = typename Task::template Seen<Common>;
  static_assert(Task::strips == strips);
  // Heads of 128 leave no room to load further ahead. Values that stay in shared memory have as many places as keys.
  static constexpr int query_stages = Size <= 64 ? 4 : 2, key_stages = Size <= 64 ? 2 : 1,
                       value_stages = Size <= 32 ? 2 : 1, ds_stages = Size <= 32 ? 4 : 2, sum_buffers = 2;

  struct Control {
    Statistics statistics[query_stages];
    Ticket tickets[key_stages];
    std::uint64_t query_full[query_stages], query_empty[query_stages];
    std::uint64_t key_full[key_stages], key_empty[key_stages];
    std::uint64_t value_full[value_stages], value_empty[value_stages], ds_full[strips][ds_stages],
        ds_empty[strips][ds_stages];
    std::uint64_t sum_ready[sum_buffers], sum_full[sum_buffers];
  };
  // Shared memory, from a multiple of 1024 bytes. Keys, values and dS are `strips` tiles of 64 keys.
  static constexpr int keys_at = 0, values_at = keys_at + key_stages * strips * key_bytes,
                       queries_at = values_at + value_stages * strips * key_bytes,
                       ds_at = queries_at + query_stages * tile_bytes, sums_at = ds_at + ds_stages * strips * ds_bytes,
                       control_at = sums_at + sum_buffers * dq_bytes;
  static constexpr std::size_t shared_bytes = control_at + sizeof(Control) + tile_alignment;
  static_assert(shared_bytes <= shared_of_block);

  const Problem& problem;
  Task& task;
  Control& control;

  __device__ TurnsBlock(const Problem& p, Task& t, char* memory)
      : Common(p, t, memory, this_thread() % warpgroup_threads),
        problem(p),
        task(t),
        control(*reinterpret_cast<Control*>(memory + control_at)) {}

  // Every thread arrives itself for memory of ordinary loads and stores, because racecheck does not accept an arrival
  // on behalf of another thread (general/backward_kernel.cuh). Memory that matrix products alone read has one arrival
  // per warp.
  __device__ void init_barriers() const {
    for (int i = 0; i < query_stages; ++i) {
      barrier_init(&control.query_full[i], 1 + warp_threads);
      barrier_init(&control.query_empty[i], own_keys);
    }
    for (int i = 0; i < key_stages; ++i) {
      barrier_init(&control.key_full[i], 1);
      barrier_init(&control.key_empty[i], (strips + 1) * warpgroup_warps + sum_buffers);
    }
    for (int i = 0; i < value_stages; ++i) {
      barrier_init(&control.value_full[i], 1);
      barrier_init(&control.value_empty[i], own_keys);
    }
    for (int strip = 0; strip < strips; ++strip)
      for (int i = 0; i < ds_stages; ++i) {
        barrier_init(&control.ds_full[strip][i], warpgroup_threads);
        barrier_init(&control.ds_empty[strip][i], warpgroup_warps);
      }
    for (int i = 0; i < sum_buffers; ++i) {
      barrier_init(&control.sum_ready[i], 1);
      barrier_init(&control.sum_full[i], warpgroup_threads);
    }
    barrier_init_fence();
    proxy_fence();
  }

  __device__ char* keys(int stage) const { return shared + keys_at + stage * strips * key_bytes; }
  __device__ char* values(int stage) const { return shared + values_at + stage * strips * key_bytes; }
  __device__ char* queries(int stage) const { return shared + queries_at + stage * tile_bytes; }
  __device__ char* ds(int stage, int strip) const { return shared + ds_at + (strips * stage + strip) * ds_bytes; }
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
  // Hands over dS^T (keys, queries), as the registers of one of the warpgroups with keys hold it.
  __device__ void hand_over(const RingSlot& at, int strip, const std::uint32_t (&a)[4][4]) const {
    barrier_wait(&control.ds_empty[strip][at.index], at.parity ^ 1);
    const int matrix = lane / 8;
    char* const row = ds(at.index, strip) + (16 * warp + matrix % 2 * 8 + lane % 8) * 128;
#pragma unroll
    for (int i = 0; i < 4; ++i)
      store_matrices(row + ((2 * i + matrix / 2) ^ lane % 8) * 16, a[i][0], a[i][1], a[i][2], a[i][3]);
    proxy_fence();
    barrier_arrive(&control.ds_full[strip][at.index]);
  }
};

}  // namespace longstride::kernels::cuda::sm90
