// Tiles in shared memory, and a warp's product of them: a strip of 16 rows, up to 16 * Blocks columns, in the layout of
// fragment.cuh. 16-bit tiles take mma.sync, f32 ones fused multiply-adds in the same layout.
#pragma once
#include <cstdint>
#include <type_traits>

#include "kernels/base/cuda_types.cuh"
#include "kernels/gpu/fragment.cuh"
#include "kernels/gpu/lane.cuh"
#include "kernels/gpu/mma.cuh"

namespace longstride::kernels::cuda::scanning {

// Memory is not read earlier: the compiler would, for all elements of a strip at once, for which registers do not
// suffice.
__device__ inline void read_later() { asm volatile("" ::: "memory"); }

inline constexpr int rows = 128, warps = rows / 16, threads = warps * warp_threads;
static_assert(rows == scan_chunk);

// Key channels that are in shared memory at a time, and columns of values, of which the last group may have 16 more, so
// that z of a normalised scan needs none of its own. f32 has room for half as many.
template <class T>
inline constexpr int slice = sizeof(T) == 4 ? 32 : 64;
template <class T>
inline constexpr int group = slice<T>;
template <class T>
inline constexpr int widest_group = group<T> + 16;
template <class T>
inline constexpr int group_blocks = widest_group<T> / 16;

// Rows are 16 bytes longer than what they hold, so that eight of them that ldmatrix reads lie in different banks.
template <class T>
constexpr int stride_of(int columns) {
  return columns + 16 / static_cast<int>(sizeof(T));
}
template <class T, int Columns>
struct Tile {
  using Element = T;
  static constexpr int stride = stride_of<T>(Columns);
  T* data;

  __device__ T* at(int row, int column) const { return data + row * stride + column; }
  __device__ float operator()(int row, int column) const { return to_float(*at(row, column)); }
  __device__ void set(int row, int column, float x) const { *at(row, column) = from_float<T>(x); }
};
template <class T, int Columns>
constexpr std::size_t tile_bytes(int of_rows) {
  return sizeof(T) * static_cast<std::size_t>(of_rows * stride_of<T>(Columns));
}

// A product's operand as it lies in its tile: across, its row is a column there.
template <class TileType>
struct Across {
  using Element = typename TileType::Element;
  TileType tile;
};

template <int Blocks>
struct Strip {
  float d[Blocks][2][4];

  __device__ void clear() {
    each([](int, int, float& x) { x = 0; });
  }
  // f(row in the strip, column, element).
  template <class F>
  __device__ void each(F&& f) {
    const int lane = this_lane();
#pragma unroll
    for (int b = 0; b < Blocks; ++b) {
      read_later();
#pragma unroll
      for (int h = 0; h < 2; ++h)
#pragma unroll
        for (int e = 0; e < 4; ++e) f(lane / 4 + e / 2 * 8, 16 * b + 8 * h + lane % 4 * 2 + e % 2, d[b][h][e]);
    }
  }
  // f(row, even column, that element, the next).
  template <class F>
  __device__ void each_pair(F&& f) {
    const int lane = this_lane();
#pragma unroll
    for (int b = 0; b < Blocks; ++b)
#pragma unroll
      for (int h = 0; h < 2; ++h)
#pragma unroll
        for (int r = 0; r < 2; ++r)
          f(lane / 4 + r * 8, 16 * b + 8 * h + lane % 4 * 2, d[b][h][2 * r], d[b][h][2 * r + 1]);
  }
};

// The left operand's rows [row, +16) of columns [k, +16).
template <class TileType>
__device__ inline void load_left(std::uint32_t (&a)[4], const TileType& tile, int row, int k) {
  const int lane = this_lane();
  load_matrices(a, tile.at(row + lane % 16, k + lane / 16 * 8));
}
template <class TileType>
__device__ inline void load_left(std::uint32_t (&a)[4], const Across<TileType>& left, int row, int k) {
  const int lane = this_lane();
  load_matrices_transposed(a, left.tile.at(k + lane / 16 * 8 + lane % 8, row + lane / 8 % 2 * 8));
}
// The right operand's rows [k, +16) of columns [column, +16).
template <class TileType>
__device__ inline void load_right(std::uint32_t (&b)[4], const TileType& tile, int k, int column) {
  const int lane = this_lane();
  load_matrices_transposed(b, tile.at(k + lane % 16, column + lane / 16 * 8));
}
template <class TileType>
__device__ inline void load_right(std::uint32_t (&b)[4], const Across<TileType>& right, int k, int column) {
  const int lane = this_lane();
  load_matrices(b, right.tile.at(column + lane % 8 + lane / 16 * 8, k + lane / 8 % 2 * 8));
}

template <int C>
__device__ inline float element(Tile<float, C> tile, int row, int column) {
  return *tile.at(row, column);
}
template <int C>
__device__ inline float element(Across<Tile<float, C>> x, int row, int column) {
  return *x.tile.at(column, row);
}
// strip += left's rows [row, +16) times right's columns [column, +16 blocks), over [begin, end) in steps of 16.
template <int Blocks, class Left, class Right>
__device__ inline void add_product(Strip<Blocks>& strip, Left left, int row, Right right, int column, int blocks,
                                   int begin, int end) {
  using T = typename Left::Element;
  if constexpr (std::is_same_v<T, float>) {
    const int lane = this_lane(), first = row + lane / 4, at = column + lane % 4 * 2;
#pragma unroll 2
    for (int k = begin; k < end; ++k) {
      const float low = element(left, first, k), high = element(left, first + 8, k);
#pragma unroll
      for (int b = 0; b < Blocks; ++b) {
        if (b >= blocks) break;
#pragma unroll
        for (int h = 0; h < 2; ++h)
#pragma unroll
          for (int e = 0; e < 2; ++e) {
            const float x = element(right, k, at + 16 * b + 8 * h + e);
            strip.d[b][h][e] += low * x;
            strip.d[b][h][2 + e] += high * x;
          }
      }
    }
  } else {
#pragma unroll 1
    for (int k = begin; k < end; k += 16) {
      std::uint32_t a[4];
      load_left(a, left, row, k);
#pragma unroll
      for (int b = 0; b < Blocks; ++b) {
        if (b >= blocks) break;
        std::uint32_t x[4];
        load_right(x, right, k, column + 16 * b);
        multiply_add<T>(strip.d[b][0], a, x[0], x[1]);
        multiply_add<T>(strip.d[b][1], a, x[2], x[3]);
      }
    }
  }
}

// The same of a right operand that was divided by `scale`, which is 1 but in f16.
template <int Blocks, class Left, class Right>
__device__ inline void add_product_scaled(Strip<Blocks>& strip, float scale, Left left, int row, Right right,
                                          int column, int blocks, int begin, int end) {
  if constexpr (std::is_same_v<typename Left::Element, __half>) {
    Strip<Blocks> product;
    product.clear();
    add_product(product, left, row, right, column, blocks, begin, end);
#pragma unroll
    for (int b = 0; b < Blocks; ++b)
#pragma unroll
      for (int h = 0; h < 2; ++h)
#pragma unroll
        for (int e = 0; e < 4; ++e) strip.d[b][h][e] += product.d[b][h][e] * scale;
  } else {
    add_product(strip, left, row, right, column, blocks, begin, end);
  }
}

}  // namespace longstride::kernels::cuda::scanning
