// A warpgroup with a strip of a task's keys, in the kernel that sums dQ in turns (turns_kernel.cuh): heads of 33 to 64.
// Values are in registers, and so is dS of a tile, whose last product is issued with the first ones of the next.
#pragma once
#include <cstdint>

#include "kernels/attention/sm90/long_band/turns_block.cuh"

namespace longstride::kernels::cuda::sm90 {

template <class T, class Task, int Size>
struct TurnsKeys : TurnsBlock<T, Task, Size> {
  using Block = TurnsBlock<T, Task, Size>;
  using Block::Block;
  using Block::problem, Block::task, Block::control, Block::keys, Block::queries, Block::next_task;
  using Block::query_stages, Block::key_stages, Block::ds_stages, Block::values_at, Block::shared, Block::lane;
  using Block::size, Block::rows, Block::key_row, Block::key_bytes, Block::arrive_for_warp;
  using typename Block::Statistics, typename Block::Gradients, typename Block::Position, typename Block::Seen;

  // A task of one of the warpgroups.
  struct Turn {
    Position& at;
    const OwnRows<T, rows, size, true>& values;
    Gradients& gradients;
    const Seen seen;
    const int strip;
    const char* const own_keys;
  };

  __device__ void hand_over(Turn& turn, const std::uint32_t (&a)[4][4]) const {
    Block::hand_over(turn.at.ds, turn.strip, a);
    turn.at.ds.advance(ds_stages);
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
    turn.values.multiply(dp, descriptor<key_row>(q + key_bytes));
    if constexpr (Holds) hand_over(turn, held.ds);
    wgmma_wait<1>();
    wgmma_hold(s);
    wgmma_hold(turn.gradients.k);
    if constexpr (Holds) barrier_arrive(&control.query_empty[held.stage]);
    held.stage = stage;
    std::uint32_t weights[4][4];
    task.weigh(*this, s, weights, turn.seen, tile * rows, of);
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
    const std::int32_t begin = task.begin(problem, turn.strip, turn.seen),
                       end = task.end(problem, turn.strip, turn.seen);
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

  __device__ void sum_keys(int strip) const {
    Position at;
    OwnRows<T, rows, size, true> values;
    while (next_task(at.key)) {
      this->take_values(values, shared + values_at + strip * key_bytes, &control.value_full[0], &control.value_empty[0],
                        at.value);
      Gradients gradients = {};
      wgmma_hold(gradients.k);  // zeros now, not between products
      wgmma_hold(gradients.v);
      Turn turn = {at, values, gradients, task.seen(*this, strip), strip, keys(at.key.index) + strip * key_bytes};
      pass_queries(turn);
      arrive_for_warp(&control.key_empty[at.key.index]);
      at.key.advance(key_stages);
      task.store(*this, turn.seen, strip, problem.dk, gradients.k, problem.scale);
      task.store(*this, turn.seen, strip, problem.dv, gradients.v, 1.0f);
    }
  }
};

}  // namespace longstride::kernels::cuda::sm90
