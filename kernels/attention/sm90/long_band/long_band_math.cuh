// Shared by the backward kernels of long bands: the roles of a block's warpgroups, the loads of a warp, and the weights
// of a pair of tiles.
#pragma once
#include <cstdint>

#include "kernels/attention/sm90/band/band_backward_large_math.cuh"
#include "kernels/attention/sm90/general/own_rows.cuh"
#include "kernels/attention/sm90/long_band/long_band_plan.h"

namespace longstride::kernels::cuda::sm90 {

struct LongBandProblem : BandBackwardProblem {
  std::uint32_t tasks;
  const float* delta;  // (batch, heads, n)
};

// Size: what heads are padded to, 32, 64 or 128.
template <class T, int Size = long_band_head>
struct LongBandMath : BandBackwardLargeMath<T, Size, Size> {
  static constexpr int size = Size;
  using Common = BandBackwardLargeMath<T, size, size>;
  using Common::Common;
  using Common::key_boxes, Common::key_bytes, Common::key_row, Common::task, Common::lane, Common::rows;
  using typename Common::Seen, typename Common::Statistics;
  static constexpr int strips = key_strips(size), query_group = strips, warpgroups = strips + 2;
  static constexpr int block_threads = warpgroups * warpgroup_threads;
  static constexpr int own_keys = strips * warpgroup_threads;  // threads of the warpgroups that have keys
  // Per thread: in all as many as the block begins with, a multiple of 8 each.
  static constexpr int key_registers = strips == 2 ? 208 : 128, query_registers = 64, loading_registers = 32;
  static_assert(strips * key_registers + query_registers + loading_registers ==
                warpgroups * (65536 / block_threads / 8 * 8));

  // Statistics have -delta, to which dP is added.
  static constexpr bool begins_with_delta = strips > 2;

  // Where a warpgroup that has keys is in the rings.
  struct Position {
    RingSlot key, query, value, ds;
  };
  // Gradients of the warpgroup's 64 keys.
  struct Gradients {
    float k[size / 2], v[size / 2];
  };

  __device__ void arrive_for_warp(std::uint64_t* barrier) const {
    __syncwarp();
    if (lane == 0) barrier_arrive(barrier);
  }
  __device__ std::int32_t key_head() const { return this->problem.heads_per_key.quotient(task.head); }
  // The strips of a key tile's keys or values, by the warp's first thread. corner: of a strip, whatever its head.
  template <class Corner>
  __device__ void load_rows(char* to, const RowMaps& maps, const Corner& corner, std::uint64_t* full) const {
    if (lane > 0) return;
    barrier_arrive_expect(full, strips * key_bytes);
    for (int strip = 0; strip < strips; ++strip)
      for (int box = 0; box < key_boxes; ++box) {
        Coordinates at = corner(strip);
        at.c[0] += 64 * box;
        at.c[1] = key_head();
        tma_load(to + strip * key_bytes + box * rows * key_row, this->map_of(maps), at, full);
      }
  }
  // The first row of the head in lse and delta.
  __device__ std::int64_t first_row() const {
    return (std::int64_t{task.sequence} * this->problem.heads + task.head) * this->problem.n;
  }
  // A tile of queries and dO, with its statistics, by a warp, when `empty` has completed the phase of this parity.
  __device__ void load_queries(const LongBandProblem& problem, std::int64_t row, std::int32_t tile, char* to,
                               Statistics& of, std::uint64_t* empty, std::uint32_t parity, std::uint64_t* full) const {
    float lse[2], delta[2];
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const std::int32_t entry = tile * rows + 32 * i + lane;
      const bool there = entry < task.length;
      const std::int64_t at = row + (there ? task.position(entry) : 0);
      lse[i] = there ? __ldg(problem.lse + at) : __builtin_huge_valf();
      if (lse[i] == -__builtin_huge_valf()) lse[i] = -lse[i];  // the row sees no key: its weights are 0, not NaN
      delta[i] = there ? __ldg(problem.delta + at) : 0.0f;
    }
    barrier_wait(empty, parity);
    if (lane == 0) this->load(to, problem.q, problem.dout, tile, full);
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      of.shift[32 * i + lane] = lse[i] * -log2_e;
      of.delta[32 * i + lane] = begins_with_delta ? -delta[i] : delta[i];
    }
    barrier_arrive(full);
  }
  // The warpgroup's values, from memory that is filled again after the arrival.
  __device__ void take_values(OwnRows<T, rows, size, true>& values, const char* from, std::uint64_t* full,
                              std::uint64_t* empty, RingSlot& at) const {
    barrier_wait(full, at.parity);
    at.advance(1);
    values.load(from);
    proxy_fence();  // ldmatrix may read after the arrival otherwise, when the next values come
    barrier_arrive(empty);
  }
  __device__ void store_gradients(std::int32_t tile, const Gradients& gradients) const {
    this->template store<size>(this->problem.dk, tile, gradients.k, this->problem.scale);
    this->template store<size>(this->problem.dv, tile, gradients.v, 1.0f);
  }
  // Turns the scores of the tile of queries from `begin` on into weights, and these into the product's operand. A mask
  // is one of the whole tile: to distinguish groups of sixteen queries takes more registers, and more code.
  __device__ void weigh_tile(float (&s)[rows / 2], std::uint32_t (&weights)[4][4], const Seen& seen, std::int32_t begin,
                             const Statistics& of) const {
    if (seen.first + 15 > begin || seen.first_end < begin + rows) {
      const int column = begin + 2 * (lane % 4), from = seen.first + lane / 4 - column;
#pragma unroll
      for (int i = 0; i < rows / 2; ++i) {
        const int at = i / 4 * 8 + i % 2, r = i / 2 % 2;
        if (at < from + 8 * r || at >= seen.end[r] - column) s[i] = -__builtin_huge_valf();
      }
    }
    this->template weigh_and_pack<true>(s, weights, this->problem.scale * log2_e, of, seen, begin);
  }
};

// The roles of a block's warpgroups.
template <class Band>
__device__ void run_warpgroups(const Band& band) {
  if (threadIdx.x == 0) band.init_barriers();
  __syncthreads();
  const int group = uniform(this_warpgroup());
  if (group < Band::query_group) {
    registers_take<Band::key_registers>();
    band.sum_keys(group);
  } else if (group == Band::query_group) {
    registers_give<Band::query_registers>();
    band.sum_queries();
  } else {
    registers_give<Band::loading_registers>();
    band.serve();
  }
}

}  // namespace longstride::kernels::cuda::sm90
