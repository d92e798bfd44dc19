// y = W x for a few vectors x at once (one a sequence), W packed in tiles of 8 rows: of a tile, blocks of 512 bytes, in
// which lane l has 16 bytes, of row l / 4, from column 4 l mod 16 / size on. The warps of a block share the columns of
// a tile; their sums are added in order.
//
// For 16-bit types a block is the right operand of two mma.m16n8k16 whose left operand is 16 vectors, in an order of
// columns that lets either be read by 16 bytes.
#pragma once
#include "kernels/base/vector.cuh"

namespace longstride::kernels::cuda::generation {

constexpr int warps = 16, threads = 32 * warps;
constexpr int tile_rows = 8;
constexpr int most_batch = 16;

template <class T>
constexpr int block_columns = 64 / static_cast<int>(sizeof(T));

// The distance between vectors in shared memory, in elements: two neighbours lie in different halves of the banks.
template <class T>
__host__ __device__ constexpr int pitch_of(int columns) {
  return (columns + 2 * block_columns<T> - 1) / (2 * block_columns<T>)*2 * block_columns<T> + block_columns<T>;
}

struct Matrix {
  const uint4* blocks;
  const float* bias;  // of every row; null: none
  int tiles, depth;   // blocks of a tile
  int offset;         // the block of the grid that has tile 0

  __device__ int first() const {
    return (static_cast<int>(blockIdx.x) + static_cast<int>(gridDim.x) - offset) % static_cast<int>(gridDim.x);
  }
  // Tiles of this block of the grid.
  __device__ int own() const {
    const int f = first();
    return f < tiles ? (tiles - f - 1) / static_cast<int>(gridDim.x) + 1 : 0;
  }
};

__device__ __forceinline__ uint4 fetch(const uint4* from) {
  uint4 x;
  asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(x.x), "=r"(x.y), "=r"(x.z), "=r"(x.w)
               : "l"(from));
  return x;
}

// The first of a matrix that this thread needs, on its way before the vectors are known.
struct Ahead {
  static constexpr int most = 4;
  uint4 w[most];
  float bias;
};

struct Slots {
  int each, count;  // blocks of a tile for one warp; over all tiles of this block of the grid
  __device__ explicit Slots(const Matrix& m) : each((m.depth + warps - 1) / warps), count(each * m.own()) {}
};

__device__ __forceinline__ uint4 fetch_slot(const Matrix& m, const Slots& slots, int slot) {
  const int local = slot / slots.each;
  const int block = static_cast<int>(threadIdx.x) / 32 + warps * (slot - local * slots.each);
  if (block >= m.depth) return make_uint4(0, 0, 0, 0);
  const std::int64_t tile = m.first() + static_cast<std::int64_t>(local) * gridDim.x;
  return fetch(m.blocks + (tile * m.depth + block) * 32 + threadIdx.x % 32);
}

// The matrix's row of output `i` of this block of the grid: outputs are numbered (tile, sequence, row of the tile).
__device__ __forceinline__ int row_of(const Matrix& m, int i, int batch) {
  const int tile = m.first() + i / (tile_rows * batch) * static_cast<int>(gridDim.x);
  return tile * tile_rows + i % tile_rows;
}

__device__ __forceinline__ void fetch_ahead(const Matrix& m, int batch, Ahead& ahead) {
  const Slots slots(m);
#pragma unroll
  for (int s = 0; s < Ahead::most; ++s)
    if (s < slots.count) ahead.w[s] = fetch_slot(m, slots, s);
  const int i = static_cast<int>(threadIdx.x);
  ahead.bias = 0;
  if (m.bias != nullptr && i < m.own() * tile_rows * batch)
    asm volatile("ld.global.nc.f32 %0, [%1];" : "=f"(ahead.bias) : "l"(m.bias + row_of(m, i, batch)));
}

// The sums of one warp over a tile.
template <class T>
struct Sums {
  float x[4];

  __device__ void clear() {
#pragma unroll
    for (float& v : x) v = 0;
  }
  __device__ void multiply(std::uint32_t a0, std::uint32_t a1, std::uint32_t a2, std::uint32_t a3, std::uint32_t b0,
                           std::uint32_t b1) {
    if constexpr (DtypeOf<T>::value == Dtype::bf16)
      asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
          : "+f"(x[0]), "+f"(x[1]), "+f"(x[2]), "+f"(x[3])
          : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
    else
      asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
          : "+f"(x[0]), "+f"(x[1]), "+f"(x[2]), "+f"(x[3])
          : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
  }
  __device__ void add(const T* vectors, int pitch, int block, const uint4& w, int batch) {
    const int lane = static_cast<int>(threadIdx.x) % 32, g = lane / 4;
    const T* from = vectors + g * pitch + block * block_columns<T> + lane % 4 * 8;
    uint4 a = make_uint4(0, 0, 0, 0), b = a;
    if (g < batch) a = *reinterpret_cast<const uint4*>(from);
    if (g + 8 < batch) b = *reinterpret_cast<const uint4*>(from + 8 * pitch);
    multiply(a.x, b.x, a.y, b.y, w.x, w.y);
    multiply(a.z, b.z, a.w, b.w, w.z, w.w);
  }
  __device__ void store(float* to, int batch) const {  // (batch, 8)
    const int lane = static_cast<int>(threadIdx.x) % 32, g = lane / 4, r = lane % 4 * 2;
    if (g < batch) *reinterpret_cast<float2*>(to + g * tile_rows + r) = make_float2(x[0], x[1]);
    if (g + 8 < batch) *reinterpret_cast<float2*>(to + (g + 8) * tile_rows + r) = make_float2(x[2], x[3]);
  }
};

template <>
struct Sums<float> {
  float x[most_batch];

  __device__ void clear() {
#pragma unroll
    for (float& v : x) v = 0;
  }
  __device__ void add(const float* vectors, int pitch, int block, const uint4& w, int batch) {
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

// f(sequence, row, sum + bias) for the rows of this block of the grid. `ahead` holds the beginning of `m`, and then
// that of `next`. `partials`: shared memory for (own tiles, warps, batch, 8). The vectors were written before a
// __syncthreads.
template <class T, class F>
__device__ __forceinline__ void multiply(const Matrix& m, const T* vectors, int pitch, int batch, float* partials,
                                         Ahead& ahead, const Matrix& next, F&& f) {
  const Slots slots(m);
  const int warp = static_cast<int>(threadIdx.x) / 32;
  Sums<T> sums;
  const auto add = [&](int slot, const uint4& w) {
    const int local = slot / slots.each, i = slot - local * slots.each;
    if (i == 0) sums.clear();
    if (warp + warps * i < m.depth) sums.add(vectors, pitch, warp + warps * i, w, batch);
    if (i == slots.each - 1) sums.store(partials + (local * warps + warp) * batch * tile_rows, batch);
  };
#pragma unroll
  for (int s = 0; s < Ahead::most; ++s)
    if (s < slots.count) add(s, ahead.w[s]);
  for (int s = Ahead::most; s < slots.count; ++s) add(s, fetch_slot(m, slots, s));
  const float bias = ahead.bias;
  fetch_ahead(next, batch, ahead);
  if (slots.count == 0) return;  // the whole block
  __syncthreads();
  const int outputs = m.own() * tile_rows * batch, tile = tile_rows * batch;
  for (int i = static_cast<int>(threadIdx.x); i < outputs; i += threads) {
    const int row = row_of(m, i, batch);
    float sum = i < threads ? bias : m.bias != nullptr ? m.bias[row] : 0.0f;
    const float* from = partials + i / tile * warps * tile + i % tile;
    const int used = m.depth < warps ? m.depth : warps;
    for (int w = 0; w < used; ++w) sum += from[w * tile];
    f(i % tile / tile_rows, row, sum);
  }
}

}  // namespace longstride::kernels::cuda::generation
