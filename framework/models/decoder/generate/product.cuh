// y = W x for a few vectors x at once, one per sequence. W is packed in tiles of 8 rows, and a tile in blocks of 512
// bytes, of which lane l reads 16: row l / 4, from column 4 l mod 16 / size on. The warps of a thread block divide the
// columns of a tile; their sums are added in a fixed order.
//
// For 16-bit types a block is the right operand of two mma.m16n8k16 whose left operand is 16 vectors. The order of
// columns lets a lane read either operand 16 bytes at a time.
#pragma once
#include "kernels/base/vector.cuh"
#include "kernels/gpu/global.cuh"
#include "kernels/gpu/mma.cuh"

namespace longstride::generation {

using namespace kernels;
using namespace kernels::cuda;

constexpr int warps = 8, threads = 32 * warps;
constexpr int tile_rows = 8;
constexpr int most_batch = 16;

template <class T>
constexpr int block_columns = 64 / static_cast<int>(sizeof(T));

// Distance between vectors in shared memory, in elements. Neighbouring vectors are in different halves of the banks.
template <class T>
__host__ __device__ constexpr int pitch_of(int columns) {
  return (columns + 2 * block_columns<T> - 1) / (2 * block_columns<T>)*2 * block_columns<T> + block_columns<T>;
}

// This thread block's share of a matrix, computed once for all layers: `own` tiles from `first` on, gridDim.x apart. A
// warp has every 8th block of each tile, at most 2^shift of them. A slot is one such block, counted over all tiles.
struct alignas(16) MatrixShare {
  int first, own;
  int depth;  // blocks per tile
  int shift;

  __device__ int slots() const { return own << shift; }
  __device__ int tile(int slot) const { return slot >> shift; }
  __device__ int turn(int slot) const { return slot & ((1 << shift) - 1); }
  __device__ bool holds(int slot) const {
    return slot < slots() && static_cast<int>(threadIdx.x) / 32 + turn(slot) * warps < depth;
  }
  // Index of this thread's 16 bytes of the slot.
  __device__ int index(int slot) const {
    return ((first + tile(slot) * static_cast<int>(gridDim.x)) * depth + turn(slot) * warps) * 32 +
           static_cast<int>(threadIdx.x);
  }
  __device__ int row(int own_tile, int in_tile) const {
    return (first + own_tile * static_cast<int>(gridDim.x)) * tile_rows + in_tile;
  }
};

// `offset`: the thread block that has tile 0.
__device__ inline MatrixShare share_of(int tiles, int depth, int offset) {
  const int grid = static_cast<int>(gridDim.x);
  MatrixShare s;
  s.first = (static_cast<int>(blockIdx.x) + grid - offset) % grid;
  s.own = s.first < tiles ? (tiles - s.first - 1) / grid + 1 : 0;
  s.depth = depth;
  s.shift = depth <= warps ? 0 : 32 - __clz((depth + warps - 1) / warps - 1);
  return s;
}

struct MatrixTiles {
  const uint4* blocks;
  const float* bias;  // one per row; may be null
  MatrixShare share;
};

// The output of a product that a thread finishes first.
struct ProductOutput {
  int tile, sequence, row;

  __device__ ProductOutput(int i, int batch)
      : tile(i / (tile_rows * batch)), sequence(i / tile_rows % batch), row(i % tile_rows) {}
};

// This thread's first slots of a matrix, loaded before the vectors are known.
struct Ahead {
  static constexpr int most = 8;
  uint4 w[most];
  float bias;
};

__device__ __forceinline__ void fetch_ahead(const MatrixTiles& m, const ProductOutput& output, Ahead& ahead) {
  const MatrixShare share = m.share;
#pragma unroll
  for (int s = 0; s < Ahead::most; ++s) ahead.w[s] = load_or_zero(m.blocks + share.index(s), share.holds(s));
  ahead.bias = load_or_zero(m.bias + share.row(output.tile, output.row), m.bias != nullptr && output.tile < share.own);
}

// The sums of one warp over a tile.
template <class T>
struct Sums {
  static constexpr int chains = 4;  // independent accumulators
  float x[chains][4];

  __device__ void clear() {
#pragma unroll
    for (auto& chain : x)
#pragma unroll
      for (float& v : chain) v = 0;
  }
  // `turn` only selects the accumulators.
  __device__ void add(const T* vectors, int pitch, int block, const uint4& w, int batch, int turn) {
    const int lane = static_cast<int>(threadIdx.x) % 32, g = lane / 4;
    const T* from = vectors + g * pitch + block * block_columns<T> + lane % 4 * 8;
    uint4 a = make_uint4(0, 0, 0, 0), b = a;
    if (g < batch) a = *reinterpret_cast<const uint4*>(from);
    if (g + 8 < batch) b = *reinterpret_cast<const uint4*>(from + 8 * pitch);
    multiply_add<T>(x[turn % 2 * 2], a.x, b.x, a.y, b.y, w.x, w.y);
    multiply_add<T>(x[turn % 2 * 2 + 1], a.z, b.z, a.w, b.w, w.z, w.w);
  }
  __device__ void store(float* to, int batch) const {  // (batch, 8)
    const int lane = static_cast<int>(threadIdx.x) % 32, g = lane / 4, r = lane % 4 * 2;
    float sum[4];
#pragma unroll
    for (int e = 0; e < 4; ++e) sum[e] = (x[0][e] + x[1][e]) + (x[2][e] + x[3][e]);
    if (g < batch) *reinterpret_cast<float2*>(to + g * tile_rows + r) = make_float2(sum[0], sum[1]);
    if (g + 8 < batch) *reinterpret_cast<float2*>(to + (g + 8) * tile_rows + r) = make_float2(sum[2], sum[3]);
  }
};

template <>
struct Sums<float> {
  float x[most_batch];

  __device__ void clear() {
#pragma unroll
    for (float& v : x) v = 0;
  }
  __device__ void add(const float* vectors, int pitch, int block, const uint4& w, int batch, int) {
    const float* from = vectors + block * block_columns<float> + threadIdx.x % 4 * 4;
#pragma unroll
    for (int s = 0; s < most_batch; ++s) {
      if (s >= batch) break;
      const float4 v = *reinterpret_cast<const float4*>(from + s * pitch);
      x[s] += v.x * __uint_as_float(w.x) + v.y * __uint_as_float(w.y) + v.z * __uint_as_float(w.z) +
              v.w * __uint_as_float(w.w);
    }
  }
  __device__ void store(float* to, int batch) const {
#pragma unroll
    for (int s = 0; s < most_batch; ++s) {
      if (s >= batch) break;
      float sum = x[s];
      sum += __shfl_xor_sync(0xFFFFFFFFu, sum, 1);
      sum += __shfl_xor_sync(0xFFFFFFFFu, sum, 2);
      if (threadIdx.x % 4 == 0) to[s * tile_rows + threadIdx.x % 32 / 4] = sum;
    }
  }
};

// Calls f(sequence, row, sum + bias) for the rows of this thread block. On entry `ahead` holds the first slots of `m`,
// on return those of `next`. `partials`: shared memory for (own tiles, warps, batch, 8). A __syncthreads must separate
// the writes of the vectors from this call.
template <class T, class F>
__device__ __forceinline__ void multiply(const MatrixTiles& m, const T* vectors, int pitch, int batch,
                                         const ProductOutput& output, float* partials, Ahead& ahead,
                                         const MatrixTiles& next, F&& f) {
  const MatrixShare share = m.share;
  const int warp = static_cast<int>(threadIdx.x) / 32, outputs_of_tile = tile_rows * batch;
  Sums<T> sums;
  // Slot s; `chain` equals s modulo 2.
  const auto add = [&](int s, int chain, const uint4& w) {
    const int turn = share.turn(s), block = warp + turn * warps;
    if (turn == 0) sums.clear();
    if (block < share.depth) sums.add(vectors, pitch, block, w, batch, chain);
    if (turn == (1 << share.shift) - 1) sums.store(partials + (share.tile(s) * warps + warp) * outputs_of_tile, batch);
  };
  const int slots = share.slots();
#pragma unroll
  for (int s = 0; s < Ahead::most; ++s) {
    if (s >= slots) break;
    add(s, s, ahead.w[s]);
  }
  for (int s = Ahead::most; s < slots; ++s) add(s, 0, load_or_zero(m.blocks + share.index(s), share.holds(s)));
  const float bias = ahead.bias;
  fetch_ahead(next, output, ahead);
  if (share.own == 0) return;  // the whole thread block returns
  __syncthreads();
  const auto finish = [&](const ProductOutput& o, int i, float sum) {
    const float* from = partials + o.tile * warps * outputs_of_tile + i - o.tile * outputs_of_tile;
    if (share.depth >= warps) {
      float x[warps];
#pragma unroll
      for (int w = 0; w < warps; ++w) x[w] = from[w * outputs_of_tile];
#pragma unroll
      for (int w = 0; w < warps; ++w) sum += x[w];
    } else {
      for (int w = 0; w < share.depth; ++w) sum += from[w * outputs_of_tile];
    }
    f(o.sequence, share.row(o.tile, o.row), sum);
  };
  if (output.tile < share.own) finish(output, static_cast<int>(threadIdx.x), bias);
  for (int i = static_cast<int>(threadIdx.x) + threads; i < share.own * outputs_of_tile; i += threads) {
    const ProductOutput o(i, batch);
    finish(o, i, m.bias != nullptr ? m.bias[share.row(o.tile, o.row)] : 0.0f);
  }
}

}  // namespace longstride::generation
