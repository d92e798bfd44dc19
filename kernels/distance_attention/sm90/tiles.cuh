// The parts that the kernels for Hopper share: tiles of 64 rows of 128 bytes in shared memory, their products by a
// warpgroup, groups of neighbouring tiles that a block takes at a time, and the two rings through which a block reads.
//
// Two warpgroups of consumers have a tile each and one producer thread copies what they read. One ring has what both
// warpgroups read in a step; the other has pieces of the table, 64 distances each. A warpgroup needs two neighbouring
// pieces per step and one new piece from one step to the next, and its neighbour needs the same pieces a step earlier
// or later.
#pragma once
#include "kernels/attention/pattern/plan.h"
#include "kernels/base/approximate.cuh"
#include "kernels/distance_attention/gpu/pairs.cuh"
#include "kernels/distance_attention/sm90/problem.h"
#include "kernels/gpu/barrier.cuh"
#include "kernels/gpu/fragment.cuh"
#include "kernels/gpu/lane.cuh"
#include "kernels/gpu/ring.cuh"
#include "kernels/gpu/shared.cuh"
#include "kernels/gpu/tma.cuh"
#include "kernels/gpu/wgmma.cuh"

namespace longstride::kernels::cuda::distance::sm90 {

inline constexpr int warpgroups = 2, threads = (warpgroups + 1) * warpgroup_threads, producer = 2 * warpgroup_threads;
inline constexpr int row_bytes = 128, tile_bytes = tile_rows * row_bytes;
inline constexpr int producer_registers = 40, consumer_registers = 232;
inline constexpr int arrivals = warpgroups * warpgroup_warps;  // one lane of every warp of the consumers

// A warpgroup's accumulator of 64 x 64, and the left operand of a product with 64 rows.
using Accumulator = float[32];
using Operand = std::uint32_t[4][4];

__device__ inline void clear(Accumulator& d) {
#pragma unroll
  for (float& x : d) x = 0;
}
template <class T>
__device__ inline void pack_all(Operand& a, const Accumulator& d) {
#pragma unroll
  for (int k = 0; k < 4; ++k) pack_operand<T>(a[k], d, k);
}

// This warp's number in its warpgroup, and a lane's first row and column in an accumulator.
__device__ inline int warp_of_group() { return uniform(this_warp() % warpgroup_warps); }
__device__ inline int lane_row() { return this_warp() % warpgroup_warps * 16 + this_lane() / 4; }
__device__ inline int lane_column() { return this_lane() % 4 * 2; }

// Products, none of which is committed. d = a b^T or, if `adds`, d += a b^T.
template <class T>
__device__ inline void multiply(Accumulator& d, const Operand& a, std::uint64_t b, bool adds) {
#pragma unroll
  for (int k = 0; k < 4; ++k) wgmma<T, 64, false>(d, a[k], advanced(b, 32 * k), adds || k > 0);
}
template <class T>
__device__ inline void multiply(Accumulator& d, std::uint64_t a, std::uint64_t b, bool adds) {
#pragma unroll
  for (int k = 0; k < 4; ++k) wgmma<T, 64, false>(d, advanced(a, 32 * k), advanced(b, 32 * k), adds || k > 0);
}
// d += a b
template <class T>
__device__ inline void multiply_rows(Accumulator& d, const Operand& a, std::uint64_t b) {
#pragma unroll
  for (int k = 0; k < 4; ++k) wgmma<T, 64, true>(d, a[k], advanced(b, 16 * row_bytes * k), true);
}
// d += a^T b
template <class T>
__device__ inline void multiply_columns(Accumulator& d, std::uint64_t a, std::uint64_t b) {
#pragma unroll
  for (int k = 0; k < 4; ++k) wgmma_rows<T>(d, advanced(a, 16 * row_bytes * k), advanced(b, 16 * row_bytes * k), true);
}

// The 16 bytes of a tile that a lane names to load or store columns [16 k, 16 k + 16) of its warp's rows as an operand.
__device__ inline char* operand_chunk(char* tile, int k) {
  const int row = this_warp() % warpgroup_warps * 16 + this_lane() % 16;
  return tile + row * row_bytes + ((2 * k + this_lane() / 16) ^ row % 8) * 16;
}
__device__ inline void load_operand(Operand& a, char* tile) {
#pragma unroll
  for (int k = 0; k < 4; ++k) load_matrices(a[k], operand_chunk(tile, k));
}
__device__ inline void store_operand(char* tile, const Operand& a) {
#pragma unroll
  for (int k = 0; k < 4; ++k) store_matrices(operand_chunk(tile, k), a[k][0], a[k][1], a[k][2], a[k][3]);
}

// Stores rows of an accumulator, times factor[h] for the lane's rows h, as 16 bytes per lane. row(h) is the address of
// the row, or null.
template <class T, class F>
__device__ inline void store_rows(const Accumulator& d, const float (&factor)[2], std::int32_t size, F&& row) {
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    T* const to = row(h);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      std::uint32_t v[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float* x = d + element_at(4 * half + i, h);
        v[i] = pack<T>(x[0] * factor[h], x[1] * factor[h]);
      }
      transpose_quad(v);
      const int column = 32 * half + this_lane() % 4 * 8;
      if (to != nullptr && column < size) *reinterpret_cast<uint4*>(to + column) = {v[0], v[1], v[2], v[3]};
    }
  }
}

// The columns of query tile t and key tile s that a row sees.
__device__ inline Interval visible_columns(const Place& p, const TilePairs& pairs, int row) {
  return {max(pairs.first_key, pairs.base + row - p.head.reach.end + 1), pairs.base + row - p.head.reach.begin + 1};
}

// Calls f(i, weight) for the elements of an accumulator of scores.
template <class F>
__device__ inline void each_weight(const Head& head, const TilePairs& pairs, F&& f) {
  const std::int32_t base = pairs.base + lane_row() - lane_column();
#pragma unroll
  for (int i = 0; i < 32; ++i) f(i, head.ramp.weight((base + i / 2 % 2 * 8 - i / 4 * 8 - i % 2) * head.step));
}
// Adds the logarithms of weights to scores, which are multiplied by `rate` to be of base 2.
__device__ inline void add_log_weights(Accumulator& s, float rate, const Head& head, const TilePairs& pairs) {
  const float unit = __fdividef(1, rate);
  each_weight(head, pairs, [&](int i, float weight) { s[i] = fmaf(__log2f(weight), unit, s[i]); });
}

// Tiles of queries and of keys of a residue class.
LONGSTRIDE_HOST_DEVICE inline std::int32_t tiles_of_queries(const Problem& problem) {
  return (problem.queries + tile_rows - 1) / tile_rows;
}
LONGSTRIDE_HOST_DEVICE inline std::int32_t tiles_of_keys(const Problem& problem) {
  return (problem.keys + tile_rows - 1) / tile_rows;
}
// The groups of a head with `tiles` tiles per class.
LONGSTRIDE_HOST_DEVICE inline std::int32_t groups_of_head(const Problem& problem, std::int32_t tiles) {
  return problem.step * ((tiles + warpgroups - 1) / warpgroups);
}
LONGSTRIDE_HOST_DEVICE inline std::int32_t groups_of(const Problem& problem, std::int32_t tiles) {
  return groups_of_head(problem, tiles) * problem.units;
}

// The two tiles of queries or of keys that a block takes at a time, and the tiles of keys or of queries that they meet.
// The producer finds out and hands it to the consumers with the tiles, because they would stand still meanwhile.
struct Group {
  Place p;
  std::int32_t first;  // tile of warpgroup 0
  std::int32_t unit;   // number in the launch
  TileRange own[warpgroups], all;

  // `index` counts the groups of `tiles` tiles of all units and classes. Groups of one head have different amounts of
  // work, so a block takes them in turns.
  template <class Range>
  __device__ Group(const Problem& problem, std::int32_t index, std::int32_t tiles, Range&& range)
      : p(place(problem, index, groups_of_head(problem, tiles))),
        first(p.tile * warpgroups),
        unit(index / groups_of_head(problem, tiles)),
        all{0, 0} {
#pragma unroll
    for (int w = 0; w < warpgroups; ++w) {
      own[w] = range(p, first + w);
      all = joined(all, own[w]);
    }
  }
  __device__ TileRange own_of(int w) const { return w == 0 ? own[0] : own[1]; }
  __device__ std::int32_t steps() const { return max(all.end - all.begin, 0); }

 private:
  __device__ static Place place(const Problem& problem, std::int32_t index, std::int32_t groups) {
    const std::int32_t of_launch = index / groups, in_turn = max(static_cast<std::int32_t>(gridDim.x) / groups, 1);
    const std::int32_t number = (index % groups + of_launch / in_turn) % groups, unit = problem.first_unit + of_launch;
    return {problem.call, unit / problem.heads, problem.head[unit % problem.heads], number};
  }
};
__device__ inline Group query_group(const Problem& problem, std::int32_t index) {
  return {problem, index, tiles_of_queries(problem), [](const Place& p, std::int32_t t) { return key_tiles(p, t); }};
}
__device__ inline Group key_group(const Problem& problem, std::int32_t index) {
  return {problem, index, tiles_of_keys(problem), [](const Place& p, std::int32_t s) { return query_tiles(p, s); }};
}

// Copies tiles of a class of a head. Called by one thread.
struct Loader {
  const Problem& problem;
  std::int32_t sequence, head, residue;

  __device__ Loader(const Problem& problem_, const Place& p)
      : problem(problem_), sequence(p.head.sequence), head(p.head.head), residue(p.in.first) {}

  __device__ void tile(char* to, const CUtensorMap& map, std::int32_t row, std::uint64_t* barrier) const {
    tma_load(to, &map, {{0, head, row, residue, sequence}}, barrier);
  }
  // Piece n of the table: m = origin - 63 + 64 n + (0 .. 63).
  __device__ void piece(char* to, std::int32_t origin, std::int32_t n, std::uint64_t* barrier) const {
    const std::int32_t row = origin - (tile_rows - 1) + n * tile_rows;
    tma_load(to, &problem.table, {{0, problem.call.table_head > 0 ? head : 0, row, 0, 0}}, barrier);
  }
};

template <int Slots>
struct RingBarriers {
  std::uint64_t full[Slots], empty[Slots];

  __device__ void init() {
    for (int i = 0; i < Slots; ++i) {
      barrier_init(&full[i], 1);
      barrier_init(&empty[i], arrivals);
    }
  }
};

// Called by all threads of a block before any of them uses its rings.
template <class... Rings>
__device__ inline void start_rings(Rings&... rings) {
  if (threadIdx.x == 0) {
    (rings.init(), ...);
    barrier_init_fence();
    proxy_fence();
  }
  __syncthreads();
}

// The producer's end of a ring.
template <int Slots>
struct Filling {
  RingBarriers<Slots>& ring;
  RingSlot slot = {};

  // Waits for room and announces `bytes`; then the copies, then advance().
  __device__ std::uint64_t* begin(std::uint32_t bytes) {
    wait();
    return announce(bytes);
  }
  // Both steps, between which the slot may be written by ordinary stores.
  __device__ void wait() { barrier_wait(&ring.empty[slot.index], slot.parity ^ 1); }
  __device__ std::uint64_t* announce(std::uint32_t bytes) {
    barrier_arrive_expect(&ring.full[slot.index], bytes);
    return &ring.full[slot.index];
  }
  __device__ void advance() { slot.advance(Slots); }
};

// A warpgroup's end of a ring.
template <int Slots>
struct Emptying {
  RingBarriers<Slots>& ring;
  RingSlot slot = {};

  // Waits until the next slot is full and returns it.
  __device__ int take() {
    barrier_wait(&ring.full[slot.index], slot.parity);
    const int taken = slot.index;
    slot.advance(Slots);
    return taken;
  }
  __device__ void release(int taken) {
    __syncwarp();
    if (this_lane() == 0) barrier_arrive(&ring.empty[taken]);
  }
  __device__ void skip() { release(take()); }
  __device__ void skip(std::int32_t count) {
#pragma unroll 1
    for (; count > 0; --count) skip();
  }
};

// Reads what the producer fills in this order: pieces 0 to `warpgroups`, then step 0, one more piece, step 1, ...
// Without a table there are no pieces.
template <int StepSlots, int PieceSlots>
struct Reader {
  Emptying<StepSlots> steps;
  Emptying<PieceSlots> pieces;
  std::int32_t step = 0, piece = 0;  // taken since reset()

  __device__ void reset() { step = piece = 0; }
  __device__ int take_step() {
    ++step;
    return steps.take();
  }
  __device__ int take_piece() {
    ++piece;
    return pieces.take();
  }
  // Lets go of what comes before step `to_step` and piece `to_piece`.
  template <bool Table>
  __device__ void skip(std::int32_t to_step, std::int32_t to_piece) {
    if constexpr (!Table) to_piece = 0;
    while (step < to_step || piece < to_piece) {
      for (; piece < min(to_piece, warpgroups + step + 1); ++piece) pieces.skip();
      if (step < to_step) {
        steps.skip();
        ++step;
      }
    }
  }
};
// Calls piece(i) and step(k) in that order; without a table (`Table`) there are no pieces.
template <bool Table, class Piece, class Step>
__device__ inline void in_order(std::int32_t steps, Piece&& piece, Step&& step) {
  for (int i = 0; Table && i <= warpgroups; ++i) piece(i);
  for (std::int32_t k = 0; k < steps; ++k) {
    step(k);
    if (Table && k + 1 < steps) piece(k + 1 + warpgroups);
  }
}

}  // namespace longstride::kernels::cuda::distance::sm90
