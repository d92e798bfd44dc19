// A warpgroup with a strip of a task's keys, in the kernel that sums dQ in turns (turns_kernel.cuh): heads of up to 32,
// with three such warpgroups, whose threads have 128 registers. So values stay in shared memory, dP begins when the
// products of the tile before have ended, and dV after dS, so that P in f32 is never next to P in 16 bits. Both last
// products of a tile are issued with the first one of the next.
#pragma once
#include <cstdint>

#include "kernels/attention/sm90/long_band/turns_block.cuh"

namespace longstride::kernels::cuda::sm90 {

template <class T, class Task, int Size>
struct TurnsNarrowKeys : TurnsBlock<T, Task, Size> {
  using Block = TurnsBlock<T, Task, Size>;
  using Block::Block;
  using Block::problem, Block::task, Block::control, Block::keys, Block::values, Block::queries, Block::ds;
  using Block::query_stages, Block::key_stages, Block::value_stages, Block::ds_stages;
  using Block::size, Block::rows, Block::key_bytes, Block::lane, Block::warp, Block::next_task, Block::arrive_for_warp;
  using typename Block::Statistics, typename Block::Gradients, typename Block::Seen;

  // Where the `count`th use of a ring is: one count of tiles for the rings of queries and dS, one of tasks for those of
  // keys and values.
  static_assert(query_stages == ds_stages && key_stages == value_stages);
  __device__ static RingSlot tile_slot(std::uint32_t count) {
    return {static_cast<int>(count % query_stages), count / query_stages % 2};
  }
  __device__ static RingSlot task_slot(std::uint32_t count) {
    return {static_cast<int>(count % key_stages), count / key_stages % 2};
  }

  // A task of one of the warpgroups.
  struct Turn {
    std::uint32_t& tiles;  // visited before
    std::uint32_t& place;  // the lane's in a tile of dS
    Gradients& gradients;
    const Seen seen;
    const int strip;
    const char *const own_keys, *const own_values;
  };
  // The place of the first row that the lane stores.
  __device__ std::uint32_t lane_place() const {
    const int matrix = lane / 8;
    return (16 * warp + matrix % 2 * 8 + lane % 8) * 128 + (matrix / 2 ^ lane % 8) * 16;
  }
  // As TurnsBlock::hand_over, which has four places per lane in registers.
  __device__ void hand_over(const Turn& turn, std::uint32_t tile, const std::uint32_t (&a)[4][4]) const {
    const RingSlot at = tile_slot(tile);
    barrier_wait(&control.ds_empty[turn.strip][at.index], at.parity ^ 1);
    asm volatile("" : "+r"(turn.place));  // keeps the compiler from computing the four before the loop
#pragma unroll
    for (int i = 0; i < 4; ++i)
      store_matrices(ds(at.index, turn.strip) + (turn.place ^ 32 * i), a[i][0], a[i][1], a[i][2], a[i][3]);
    proxy_fence();
    barrier_arrive(&control.ds_full[turn.strip][at.index]);
  }
  __device__ void wait_for_queries(const Turn& turn) const {
    const RingSlot at = tile_slot(turn.tiles);
    barrier_wait(&control.query_full[at.index], at.parity);
  }
  __device__ void release_queries(std::uint32_t tile) const {
    barrier_arrive(&control.query_empty[tile_slot(tile).index]);
  }
  // Query tiles that do not see the warpgroup's keys.
  __device__ void skip(Turn& turn, std::int32_t tiles) const {
#pragma unroll 1
    for (; tiles > 0; --tiles) {
      wait_for_queries(turn);
      hand_over(turn, turn.tiles, {});
      release_queries(turn.tiles++);
    }
  }

  // P and dS of the last tile, whose last products are issued with the first ones of the next.
  struct Held {
    std::uint32_t weights[4][4], ds[4][4];
  };
  __device__ void begin_sums(Turn& turn, const Held& held) const {
    const char* const q = queries(tile_slot(turn.tiles - 1).index);
    this->template add_product<size>(turn.gradients.v, held.weights, q + key_bytes);
    this->template add_product<size>(turn.gradients.k, held.ds, q);
  }
  // After the products: the hand-over comes before, while they run.
  __device__ void end_sums(Turn& turn) const {
    wgmma_hold(turn.gradients.v);
    wgmma_hold(turn.gradients.k);
    release_queries(turn.tiles - 1);
  }
  // dP - delta: the sums begin with -delta, which costs half as many instructions as a subtraction afterwards.
  __device__ void begin_differences(float (&dp)[rows / 2], const Turn& turn, const char* dout,
                                    const Statistics& of) const {
    static_assert(Block::begins_with_delta);
    const int column = 2 * (lane % 4);
#pragma unroll
    for (int j = 0; j < 8; ++j) {
      const float2 delta = *reinterpret_cast<const float2*>(of.delta + 8 * j + column);
      dp[4 * j] = dp[4 * j + 2] = delta.x;
      dp[4 * j + 1] = dp[4 * j + 3] = delta.y;
    }
    wgmma_fence();
    multiply_tiles<T, size>(dp, turn.own_values, dout, true);
  }
  template <bool Holds>
  __device__ void pass_tile(Turn& turn, std::int32_t tile, Held& held) const {
    const int stage = tile_slot(turn.tiles).index;
    const char* const q = queries(stage);
    const Statistics& of = control.statistics[stage];
    if constexpr (Holds) begin_sums(turn, held);
    wait_for_queries(turn);
    float s[rows / 2], dp[rows / 2];
    wgmma_fence();
    multiply_tiles<T, size>(s, turn.own_keys, q);
    if constexpr (Holds) {
      hand_over(turn, turn.tiles - 1, held.ds);
      wgmma_wait<1>();
      end_sums(turn);
    }
    ++turn.tiles;
    begin_differences(dp, turn, q + key_bytes, of);
    wgmma_wait<1>();
    wgmma_hold(s);
    task.weigh(*this, s, held.weights, turn.seen, tile * rows, of);
    wgmma_wait<0>();
    wgmma_hold(dp);
#pragma unroll
    for (int i = 0; i < rows / 2; ++i) dp[i] *= s[i];
    this->pack_weights(held.ds, dp);
  }
  __device__ void pass_queries(Turn& turn) const {
    const std::int32_t begin = task.begin(problem, turn.strip, turn.seen),
                       end = task.end(problem, turn.strip, turn.seen);
    skip(turn, task.end(problem) - end);
    std::int32_t tile = end - 1;
    if (tile < begin) return;
    Held held;
    pass_tile<false>(turn, tile, held);
#pragma unroll 1
    while (--tile >= begin) pass_tile<true>(turn, tile, held);
    begin_sums(turn, held);
    hand_over(turn, turn.tiles - 1, held.ds);
    wgmma_wait<0>();
    end_sums(turn);
  }

  __device__ void sum_keys(int strip) const {
    std::uint32_t tiles = 0, place = lane_place();
    for (std::uint32_t tasks = 0; next_task(task_slot(tasks)); ++tasks) {
      const int stage = task_slot(tasks).index;
      barrier_wait(&control.value_full[stage], task_slot(tasks).parity);
      Gradients gradients = {};
      wgmma_hold(gradients.k);  // zeros now, not between products
      wgmma_hold(gradients.v);
      Turn turn = {tiles,
                   place,
                   gradients,
                   task.seen(*this, strip),
                   strip,
                   keys(stage) + strip * key_bytes,
                   values(stage) + strip * key_bytes};
      pass_queries(turn);
      barrier_arrive(&control.value_empty[stage]);
      next_task(task_slot(tasks));  // the same task, which registers have not kept
      const Seen stored = task.seen(*this, strip);
      skip(turn, task.begin(problem, strip, stored) - task.begin());
      arrive_for_warp(&control.key_empty[stage]);
      task.store(*this, stored, strip, problem.dk, gradients.k, problem.scale);
      task.store(*this, stored, strip, problem.dv, gradients.v, 1.0f);
    }
  }
};

}  // namespace longstride::kernels::cuda::sm90
