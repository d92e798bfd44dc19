// A warpgroup with a strip of a task's keys, in the kernel that sums dQ in turns (turns_kernel.cuh): heads of up to
// 128, whose dK and dV fill 128 registers of a thread. So values stay in shared memory, dS is read from there for dK, P
// is kept in 16 bits alone, and dP begins after the weights: the products of the other warpgroups fill the time.
#pragma once
#include <cstdint>

#include "kernels/attention/sm90/long_band/turns_block.cuh"

namespace longstride::kernels::cuda::sm90 {

template <class T, class Task, int Size>
struct TurnsLeanKeys : TurnsBlock<T, Task, Size> {
  using Block = TurnsBlock<T, Task, Size>;
  using Block::Block;
  using Block::problem, Block::task, Block::control, Block::ds, Block::queries, Block::next_task, Block::hand_over;
  using Block::query_stages, Block::key_stages, Block::ds_stages, Block::values_at, Block::shared, Block::keys_at;
  using Block::size, Block::rows, Block::key_row, Block::key_bytes, Block::arrive_for_warp;
  using typename Block::Statistics, typename Block::Gradients, typename Block::Seen;

  // Query tiles that do not see the warpgroup's keys. The rings of queries and of dS move together.
  __device__ void skip(RingSlot& at, int strip, std::int32_t tiles) const {
#pragma unroll 1
    for (; tiles > 0; --tiles) {
      barrier_wait(&control.query_full[at.index], at.parity);
      hand_over(at, strip, {});
      barrier_arrive(&control.query_empty[at.index]);
      at.advance(query_stages);
    }
  }
  // s = own^T tile, for 64 keys or values and 64 rows of queries or dO.
  __device__ static void begin_product(float (&s)[rows / 2], const char* own, const char* tile) {
    wgmma_fence();
    multiply_tiles<T, size>(s, own, tile);
  }
  // gradient += dS^T q, both from shared memory.
  __device__ static void add_shared_product(float (&gradient)[size / 2], const char* ds, const char* tile) {
    const std::uint64_t a = descriptor<128>(ds), b = descriptor<key_row>(tile, rows * key_row);
    wgmma_fence();
#pragma unroll
    for (int i = 0; i < 4; ++i)
      wgmma<T, size, true>(gradient, advanced(a, i * 32), advanced(b, i * 16 * key_row), true);
    wgmma_commit();
  }
  __device__ static int before(int stage) { return stage == 0 ? query_stages - 1 : stage - 1; }
  __device__ void sum_keys(int strip) const {
    static_assert(key_stages == 1 && query_stages == ds_stages && query_stages >= 2);
    RingSlot at;
    const char *const own = shared + keys_at + strip * key_bytes, *const own_values = own + values_at - keys_at;
    for (std::uint32_t parity = 0; next_task({0, parity}); parity ^= 1) {
      barrier_wait(&control.value_full[0], parity);
      Gradients gradients = {};
      wgmma_hold(gradients.k);  // zeros now, not between products
      wgmma_hold(gradients.v);
      const Seen seen = task.seen(*this, strip);
      const std::int32_t begin = task.begin(problem, strip, seen), end = task.end(problem, strip, seen);
      skip(at, strip, task.end(problem) - end);
#pragma unroll 1
      for (std::int32_t tile = end - 1; tile >= begin; --tile) {
        const char* const q = queries(at.index);
        const Statistics& of = control.statistics[at.index];
        barrier_wait(&control.query_full[at.index], at.parity);
        std::uint32_t weights[4][4];
        {
          float s[rows / 2];
          begin_product(s, own, q);
          wgmma_wait<0>();  // the tile before, too
          wgmma_hold(s);
          wgmma_hold(gradients.v);
          wgmma_hold(gradients.k);
          if (tile < end - 1) barrier_arrive(&control.query_empty[before(at.index)]);
          task.weigh(*this, s, weights, seen, tile * rows, of);
        }
        float dp[rows / 2];
        begin_product(dp, own_values, q + key_bytes);
        std::uint32_t kept[4][4];
        copy_operand(kept, weights);
        this->template add_product<size>(gradients.v, weights, q + key_bytes);
        wgmma_wait<1>();
        wgmma_hold(dp);
        this->differentiate_packed(kept, dp, of);
        hand_over(at, strip, kept);
        // All warps wait here, after the end of the products before. So what those read of dS may be overwritten in the
        // next tile but one.
        barrier_wait(&control.ds_full[strip][at.index], at.parity);
        add_shared_product(gradients.k, ds(at.index, strip), q);
        at.advance(query_stages);
      }
      wgmma_wait<0>();
      wgmma_hold(gradients.k);
      wgmma_hold(gradients.v);
      if (end > begin) barrier_arrive(&control.query_empty[before(at.index)]);
      skip(at, strip, begin - task.begin());
      barrier_arrive(&control.value_empty[0]);
      next_task({0, parity});  // the same task, which registers have not kept
      arrive_for_warp(&control.key_empty[0]);
      const Seen stored = task.seen(*this, strip);
      task.store(*this, stored, strip, problem.dk, gradients.k, problem.scale);
      task.store(*this, stored, strip, problem.dv, gradients.v, 1.0f);
    }
  }
};

}  // namespace longstride::kernels::cuda::sm90
