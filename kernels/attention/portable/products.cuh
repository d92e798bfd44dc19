// 16-bit tiles in shared memory and their products by mma.sync m16n8k16, f32 accumulation.
//
// A warp's product has one or two strips of 16 rows, which share what they read. Accumulator `d[j][4]` covers columns
// [8 j, 8 j + 8), in the layout of fragment.cuh.
#pragma once
#include <cstdint>

#include "kernels/attention/portable/tiles.cuh"
#include "kernels/attention/sink.h"
#include "kernels/base/approximate.cuh"
#include "kernels/base/cuda_types.cuh"
#include "kernels/gpu/copy.cuh"
#include "kernels/gpu/fragment.cuh"
#include "kernels/gpu/mma.cuh"

namespace longstride::kernels::cuda::portable {

// Rows of 32, 64 or 128 elements. The 16-byte chunks of a row are permuted by the row's number, so that one chunk of
// eight rows, which ldmatrix reads at once, is spread over different banks.
template <class T, int Columns>
struct Tile {
  T* data;

  __device__ T* chunk(int row, int number) const {
    const int turned = Columns == 32 ? number ^ (row >> 1 & 3) : number ^ (row & 7);
    return data + row * Columns + turned * 8;
  }
};

// d[u] (16 x N) = rows [row + 16 u, +16) of a times b^T (N rows).
template <class T, int N, int Columns, int Strips>
__device__ inline void multiply_strips(float (&d)[Strips][N / 8][4], Tile<T, Columns> a, int row, Tile<T, Columns> b) {
  const int lane = this_lane();
#pragma unroll
  for (int u = 0; u < Strips; ++u)
#pragma unroll
    for (int j = 0; j < N / 8; ++j)
#pragma unroll
      for (int e = 0; e < 4; ++e) d[u][j][e] = 0;
#pragma unroll
  for (int k = 0; k < Columns / 16; ++k) {
    std::uint32_t left[Strips][4];
#pragma unroll
    for (int u = 0; u < Strips; ++u) load_matrices(left[u], a.chunk(row + 16 * u + lane % 16, 2 * k + lane / 16));
#pragma unroll
    for (int j = 0; j < N / 16; ++j) {
      std::uint32_t right[4];
      load_matrices(right, b.chunk(16 * j + lane % 8 + lane / 16 * 8, 2 * k + lane / 8 % 2));
#pragma unroll
      for (int u = 0; u < Strips; ++u) {
        multiply_add<T>(d[u][2 * j], left[u], right[0], right[1]);
        multiply_add<T>(d[u][2 * j + 1], left[u], right[2], right[3]);
      }
    }
  }
}

// d[u] (16 x Columns) += left[u] (16 x 16) times rows [row, +16) of b.
template <class T, int Columns, int Strips>
__device__ inline void multiply_fragment(float (&d)[Strips][Columns / 8][4], const std::uint32_t (&left)[Strips][4],
                                         Tile<T, Columns> b, int row) {
  const int lane = this_lane();
#pragma unroll
  for (int j = 0; j < Columns / 16; ++j) {
    std::uint32_t right[4];
    load_matrices_transposed(right, b.chunk(row + lane % 16, 2 * j + lane / 16));
#pragma unroll
    for (int u = 0; u < Strips; ++u) {
      multiply_add<T>(d[u][2 * j], left[u], right[0], right[1]);
      multiply_add<T>(d[u][2 * j + 1], left[u], right[2], right[3]);
    }
  }
}

// d[u] (16 x Columns) += p[u] (16 x K, rounded to T) b (K rows).
template <class T, int K, int Columns, int Strips>
__device__ inline void multiply_probability_strips(float (&d)[Strips][Columns / 8][4],
                                                   const float (&p)[Strips][K / 8][4], Tile<T, Columns> b) {
#pragma unroll
  for (int k = 0; k < K / 16; ++k) {
    std::uint32_t left[Strips][4];
#pragma unroll
    for (int u = 0; u < Strips; ++u)
#pragma unroll
      for (int i = 0; i < 4; ++i)
        left[u][i] = pack<T>(p[u][2 * k + i / 2][i % 2 * 2], p[u][2 * k + i / 2][i % 2 * 2 + 1]);
    multiply_fragment<T>(d, left, b, 16 * k);
  }
}

// The same of one strip.
template <class T, int N, int Columns>
__device__ inline void multiply_transposed(float (&d)[N / 8][4], Tile<T, Columns> a, int row, Tile<T, Columns> b) {
  multiply_strips<T, N>(reinterpret_cast<float(&)[1][N / 8][4]>(d), a, row, b);
}
template <class T, int K, int Columns>
__device__ inline void multiply_probabilities(float (&d)[Columns / 8][4], const float (&p)[K / 8][4],
                                              Tile<T, Columns> b) {
  multiply_probability_strips<T, K>(reinterpret_cast<float(&)[1][Columns / 8][4]>(d),
                                    reinterpret_cast<const float(&)[1][K / 8][4]>(p), b);
}

// Loads the eight elements of a row's chunk from `column` on, zeros from `size` on.
template <class T>
__device__ inline void load_chunk(T* to, const T* from, bool valid, int column, int size, bool aligned) {
  if (aligned) {
    copy_async_16(to, from, valid);
  } else {
#pragma unroll
    for (int e = 0; e < 8; ++e) to[e] = valid && column + e < size ? from[e] : from_float<T>(0);
  }
}

// Loads Count rows of a row set from entry `begin`; zeros beyond its end and beyond the rows' `size`. Called by the
// whole block.
template <int Count, class T, int Columns>
__device__ inline void load_tile(Tile<T, Columns> tile, const HeadRows<const T>& rows, int size,
                                 const EntryPositions& positions, std::int32_t begin, bool aligned) {
  constexpr int chunks = Columns / 8;
  static_assert(Count * chunks % block_threads == 0);
#pragma unroll
  for (int i = 0; i < Count * chunks / block_threads; ++i) {
    const int x = i * block_threads + static_cast<int>(threadIdx.x), row = x / chunks, column = x % chunks * 8;
    const bool valid = begin + row < positions.set.length && column < size;
    const T* from = valid ? rows.at(positions.at(begin + row)) + column : rows.data;
    load_chunk(tile.chunk(row, x % chunks), from, valid, column, size, aligned);
  }
}

// Adds from memory this lane's elements of row lane / 4 + 8 upper of a warp's 16 x Columns accumulator.
template <class T, int N>
__device__ inline void add_row(float (&d)[N][4], int upper, const T* row, int size, bool aligned) {
  const int first = static_cast<int>(threadIdx.x % 4) * 2;
#pragma unroll
  for (int j = 0; j < N; ++j) {
    const int column = 8 * j + first;
    if (aligned) {
      if (column < size) {
        const float2 there = unpack<T>(*reinterpret_cast<const std::uint32_t*>(row + column));
        d[j][2 * upper] += there.x;
        d[j][2 * upper + 1] += there.y;
      }
    } else {
#pragma unroll
      for (int e = 0; e < 2; ++e)
        if (column + e < size) d[j][2 * upper + e] += to_float(row[column + e]);
    }
  }
}

// Stores a warp's accumulator, rounded to T, in the 16 rows of a row set from entry `begin`; `scratch` is this warp's
// own.
template <class T, int Columns>
__device__ inline void store_rows(const float (&d)[Columns / 8][4], Tile<T, Columns> scratch, const HeadRows<T>& rows,
                                  int size, const EntryPositions& positions, std::int32_t begin, bool aligned) {
  constexpr int chunks = Columns / 8;
  const int lane = static_cast<int>(threadIdx.x % warp_threads);
#pragma unroll
  for (int j = 0; j < chunks; ++j)
#pragma unroll
    for (int upper = 0; upper < 2; ++upper)
      *reinterpret_cast<std::uint32_t*>(scratch.chunk(lane / 4 + 8 * upper, j) + lane % 4 * 2) =
          pack<T>(d[j][2 * upper], d[j][2 * upper + 1]);
  __syncwarp();
#pragma unroll
  for (int i = 0; i < 16 * chunks / warp_threads; ++i) {
    const int x = i * warp_threads + lane, row = x / chunks, column = x % chunks * 8;
    if (begin + row >= positions.set.length || column >= size) continue;
    T* to = rows.at(positions.at(begin + row)) + column;
    const T* from = scratch.chunk(row, x % chunks);
    if (aligned) {
      *reinterpret_cast<uint4*>(to) = *reinterpret_cast<const uint4*>(from);
    } else {
#pragma unroll
      for (int e = 0; e < 8; ++e)
        if (column + e < size) to[e] = from[e];
    }
  }
}

// The intervals of this lane's two rows of a tile; empty beyond the row set.
struct TwoIntervals {
  std::int32_t low[2], high[2];
};
template <class Seen>
__device__ inline TwoIntervals intervals_of(const Seen& seen, const RowSet& queries, std::int32_t first_row) {
  const int lane = static_cast<int>(threadIdx.x % warp_threads);
  const std::int32_t entry = first_row + lane / 4 + lane % 2 * 8;  // the lanes of a row share the work
  Interval in;
  if (entry < queries.length) in = seen.interval(queries.position(entry));
  TwoIntervals out;
#pragma unroll
  for (int upper = 0; upper < 2; ++upper) {
    out.low[upper] = __shfl_sync(0xFFFFFFFFu, in.begin, lane / 4 * 4 + upper);
    out.high[upper] = __shfl_sync(0xFFFFFFFFu, in.end, lane / 4 * 4 + upper);
  }
  return out;
}

// Calls f(Rounded sizes) with the smallest of the few tile sizes that hold a head. FewSizes: those of equal keys and
// values from 64 on.
template <int Key, int Value>
struct HeadSizes {
  static constexpr int key = Key, value = Value;
};
template <bool FewSizes = false, class F>
void with_head_sizes(std::int32_t key_size, std::int32_t value_size, F&& f) {
  if constexpr (!FewSizes) {
    if (key_size <= 32 && value_size <= 32) return f(HeadSizes<32, 32>{});
    if (key_size <= 64 && value_size > 64) return f(HeadSizes<64, 128>{});
  }
  if (key_size <= 64 && value_size <= 64) return f(HeadSizes<64, 64>{});
  f(HeadSizes<128, 128>{});
}

// Instantiates a launch for every type and term.
#define LONGSTRIDE_FOR_TERMS(name)                                                 \
  template void name<__nv_bfloat16>(const PlanCall&, const Launch&);               \
  template void name<__half>(const PlanCall&, const Launch&);                      \
  template void name<__nv_bfloat16>(const distance::PortableCall&, const Launch&); \
  template void name<__half>(const distance::PortableCall&, const Launch&);        \
  template void name<__nv_bfloat16>(const LabelsCall&, const Launch&);             \
  template void name<__half>(const LabelsCall&, const Launch&);

}  // namespace longstride::kernels::cuda::portable
