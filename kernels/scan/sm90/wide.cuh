// Walks over runs of chunks for Hopper, of bf16 heads of 129 to 256 keys and up to 64 values (the Performer's): the
// same sums as in walk/, but products read both operands from shared memory, where a block's matrices would pass the
// ports of a warp's many times. A block has four warpgroups, each of which owns 64 key channels of the state.
//
// A tile is 64 x 64 in rows of 128 bytes: keys and queries of a chunk are four of them side by side, a state four below
// each other. Decays multiply the narrow operand, values or their gradients, while it is copied.
#pragma once
#include "kernels/gpu/barrier.cuh"
#include "kernels/gpu/tensor_map.h"
#include "kernels/gpu/tma.cuh"
#include "kernels/gpu/wgmma.cuh"
#include "kernels/scan/walk/rows.cuh"

namespace longstride::kernels::cuda::scanning::wide {

using namespace walk;

using T = __nv_bfloat16;
inline constexpr int keys = 256, values = 64, warpgroups = keys / chunk, block_threads = warpgroups * warpgroup_threads,
                     steps = chunk / 16;
using Share = Shares<keys>;
using BlockState = State<T, keys, values>;
using StagedState = Staged<T, keys, values>;
using Tile = Swizzled<T, chunk>;
static_assert(Share::threads_of_block == block_threads && chunk == values);
inline constexpr std::size_t tile_bytes = bytes_of_tile<T>(chunk, chunk), keys_bytes = warpgroups * tile_bytes;

// The thread's number, and its lane, as if they could be others in every step of a walk: what addresses have of them is
// computed where it is used, as registers do not suffice to keep all of it.
__device__ __forceinline__ int thread_now() {
  int thread = this_thread();
  asm volatile("" : "+r"(thread));
  return thread;
}
__device__ __forceinline__ int lane_now() { return thread_now() % warp_threads; }
// The first row of accumulators that the warp has, its strip's, and the first of the lane's two.
__device__ __forceinline__ int strip_row() { return thread_now() / warp_threads % parts * part; }
__device__ __forceinline__ int low_row() { return strip_row() + lane_now() / 4; }

// Memory behind the first address that tiles may have.
__device__ inline char* aligned_memory() { return memory + uniform(static_cast<int>(bytes_to_tile(memory))); }
__device__ inline Tile tile_at(char* at) { return {reinterpret_cast<T*>(at)}; }
// One of four, of keys or of a state.
__device__ inline Tile part_of(char* at, int number) { return tile_at(at + number * tile_bytes); }

// An operand's descriptor, and its advance by 16 of the depth along rows, or down them.
__device__ inline std::uint64_t operand(Tile tile, int first_row = 0) {
  return descriptor<128>(reinterpret_cast<const char*>(tile.data) + first_row * 128);
}
__device__ inline std::uint64_t along(std::uint64_t operand, int step) { return advanced(operand, step * 32); }
__device__ inline std::uint64_t down(std::uint64_t operand, int step) { return advanced(operand, step * 16 * 128); }

// The accumulators of a product of 16 Blocks columns; the warpgroup's warp has the strip of this number.
template <int Blocks>
using Accumulators = float (&)[8 * Blocks];
template <int Blocks>
__device__ __forceinline__ Accumulators<Blocks> accumulators(Strip<Blocks>& strip) {
  return reinterpret_cast<Accumulators<Blocks>>(strip.d);
}

// A column of f32 numbers as the right operand of a product of 32 columns: each is a sum of two that are rounded
// (add_column of walk/tile.cuh), columns 0 and 1; all others are 0.
struct Column {
  static constexpr int row_bytes = 64;
  char* data;

  __device__ void clear(int rows_of_column) const {
    for (int i = this_thread(); i < rows_of_column * row_bytes / 16; i += block_threads)
      reinterpret_cast<uint4*>(data)[i] = make_uint4(0, 0, 0, 0);
  }
  __device__ void set(int row, float x) const {
    const float rounded = unpack<T>(pack<T>(x, 0.0f)).x;
    *reinterpret_cast<std::uint32_t*>(data + row * row_bytes + row / 2 % 4 * 16) = pack<T>(rounded, x - rounded);
  }
  __device__ std::uint64_t operand(int first_row = 0) const {
    return descriptor<row_bytes>(data + first_row * row_bytes);
  }
  __device__ static std::uint64_t down(std::uint64_t operand, int step) {
    return advanced(operand, step * 16 * row_bytes);
  }
};
// A lane's two numbers of such a product, in every fourth lane.
__device__ inline float low_of(const float (&d)[16]) { return d[element_at(0, 0, 0)] + d[element_at(0, 0, 1)]; }
__device__ inline float high_of(const float (&d)[16]) { return d[element_at(0, 1, 0)] + d[element_at(0, 1, 1)]; }

// Rows of a chunk in tensors of a call, as TMA reads them: boxes of 64 x 64, zeros beyond rows and channels.
struct Maps {
  CUtensorMap q, k, v, dout;

  Maps(const ScanCall& call, bool backward)
      : q(of(call.q, call, call.key_size)),
        k(of(call.k, call, call.key_size)),
        v(of(call.v, call, call.value_size)),
        dout(backward ? of(call.dout, call, call.value_size) : v) {}

 private:
  static CUtensorMap of(const HeadMatrix& x, const ScanCall& call, std::int64_t size) {
    return tensor_map(x.data, DtypeOf<T>::value,
                      {.size = {size, call.heads, call.n, 1, call.units / call.heads},
                       .stride = {x.head, x.row, x.row * call.n, x.batch},
                       .columns = chunk,
                       .box = {1, chunk, 1, 1}});
  }
};
__device__ inline void load_values(Tile to, const CUtensorMap& map, const Place& at, std::uint64_t* full) {
  tma_load(to.data, &map, {{0, at.head, at.first, 0, at.sequence}}, full);
}
__device__ inline void load_keys(char* to, const CUtensorMap& map, const Place& at, std::uint64_t* full) {
  for (int t = 0; t < warpgroups; ++t)
    tma_load(to + t * tile_bytes, &map, {{t * chunk, at.head, at.first, 0, at.sequence}}, full);
}

__device__ inline void prefetch_values(const CUtensorMap& map, const Place& at) {
  tma_prefetch(&map, {{0, at.head, at.first, 0, at.sequence}});
}
__device__ inline void prefetch_keys(const CUtensorMap& map, const Place& at) {
  for (int t = 0; t < warpgroups; ++t) tma_prefetch(&map, {{t * chunk, at.head, at.first, 0, at.sequence}});
}

// Two places that are loaded: barriers, and the phases that every thread has seen.
struct Places {
  std::uint64_t* const full;
  std::uint32_t phases = 0;

  __device__ explicit Places(char* at) : full(reinterpret_cast<std::uint64_t*>(at)) {
    if (this_thread() == 0) {
      barrier_init(&full[0], 1);
      barrier_init(&full[1], 1);
      barrier_init_fence();
    }
    __syncthreads();
  }
  __device__ void wait(int place) {
    barrier_wait(&full[place], phases >> place & 1);
    phases ^= 1u << place;
  }
};

// A block's run of chunks, whose steps take turns at two places. Room: offsets of memory.
template <class Room>
struct BlockRun {
  const ScanCall& call;
  const Maps& maps;
  char* const shared = aligned_memory();
  Places places{shared + Room::full};
  const int unit = static_cast<int>(blockIdx.y), run = static_cast<int>(blockIdx.x), first = run * call.run_chunks,
            count = min(call.run_chunks, (call.n + chunk - 1) / chunk - first);

  __device__ Products& products(int step) const {
    return reinterpret_cast<Products*>(shared + Room::products)[step % 2];
  }
};

// Sixteen columns of a warp's strip of a tile: what a Strip has of a block, packed.
__device__ __forceinline__ void put_words(Tile tile, int row, int column, const std::uint32_t (&words)[4]) {
  const int lane = lane_now();
  store_matrices(tile.at(row + lane % 16, column + lane / 16 * 8), words[0], words[1], words[2], words[3]);
}
__device__ __forceinline__ void put_block(Tile tile, int row, int column, const float (&d)[2][4]) {
  put_words(
      tile, row, column,
      {pack<T>(d[0][0], d[0][1]), pack<T>(d[0][2], d[0][3]), pack<T>(d[1][0], d[1][1]), pack<T>(d[1][2], d[1][3])});
}
// Writes the warpgroup's part of the state as an operand.
__device__ __forceinline__ void put_state(char* tiles, const BlockState& state, int own) {
#pragma unroll
  for (int b = 0; b < 4; ++b) put_block(part_of(tiles, own), Share::strip() * part, 16 * b, state.s.d[b]);
}
// Blocks of 16 keys of scores or errors to a tile, from one on: f(query, which of the lane's two rows, x, y), which
// changes x and y, of visible ones times D; 0 elsewhere.
template <int Blocks, class F>
__device__ __forceinline__ void put_visible(Tile tile, const Strip<Blocks>& sum, int first, const ScanCall& call,
                                            const Products& products, const Near& near, F&& f) {
  const int late = Share::strip();
#pragma unroll
  for (int b = 0; b < Blocks; ++b) {
    const int early = first + b;
    std::uint32_t words[4] = {};
    if (early <= late) {
      Strip<1> block;
#pragma unroll
      for (int e = 0; e < 8; ++e) block.d[0][e / 4][e % 4] = sum.d[b][e / 4][e % 4];
      int pair = 0;  // in the order of Strip::each_pair
      each_visible(block, products, near, late, early, call.scaled, [&](int query, int, float x, float y) {
        f(query, pair % 2, x, y);
        words[pair++] = pack<T>(x, y);
      });
    }
    put_words(tile, late * part, early * part, words);
  }
}

// to = factor(row) from, row by row. A pack a thread.
template <class F>
__device__ inline void scale_tile(Tile to, Tile from, F&& factor) {
  static_assert(chunk * chunk == block_threads * 8);
  const int thread = thread_now(), row = thread / 8, c = thread % 8 * 8;
  const float x = factor(row);
  uint4 word = *reinterpret_cast<const uint4*>(from.at(row, c));
  for (std::uint32_t* pair : {&word.x, &word.y, &word.z, &word.w}) {
    const float2 both = unpack<T>(*pair);
    *pair = pack<T>(both.x * x, both.y * x);
  }
  *reinterpret_cast<uint4*>(to.at(row, c)) = word;
}

// The product that a chunk adds to the warpgroup's rows of the state: `left`, transposed, times right, and its z.
struct Addition {
  float z[16];

  __device__ __forceinline__ void start(BlockState& state, Tile left, Tile right, const Column& column,
                                        bool normalised) {
    const std::uint64_t a = operand(left), b = operand(right), c = column.operand();
    wgmma_fence();
#pragma unroll
    for (int i = 0; i < steps; ++i) wgmma_rows<T>(accumulators(state.s), down(a, i), down(b, i), true);
    if (normalised)
#pragma unroll
      for (int i = 0; i < steps; ++i) wgmma_rows<T>(z, down(a, i), Column::down(c, i), i > 0);
    wgmma_commit();
  }
  // When it has been waited for.
  __device__ __forceinline__ void end(BlockState& state, bool normalised) {
    wgmma_hold(accumulators(state.s));
    if (!normalised) return;
    wgmma_hold(z);
    state.z[0] += low_of(z);
    state.z[2] += high_of(z);
  }
};

template <class Kernel>
void launch(const char* name, Kernel kernel, dim3 blocks, std::size_t bytes, const ScanCall& call, const Maps& maps,
            const Launch& launch) {
  bytes += tile_alignment;
  allow_shared(kernel, bytes);
  run(name, kernel, {blocks, static_cast<unsigned>(block_threads), bytes}, launch, call, maps);
}

// The number of the walk's warpgroup, in a form that the compiler knows to be one for all its warps.
__device__ inline int warpgroup() { return uniform(this_warpgroup()); }

}  // namespace longstride::kernels::cuda::scanning::wide
