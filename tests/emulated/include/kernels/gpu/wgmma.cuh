// Stands in for the kernels' header of this name where their source is compiled for the CPU
// (tests/emulated/machine/block.h).
#pragma once
#include <cuda_bf16.h>

#include <cstdint>
#include <type_traits>

#include "kernels/gpu/fragment.cuh"
#include "kernels/gpu/shared.cuh"
#include "tests/emulated/machine/products.h"

namespace longstride::kernels::cuda {

inline void wgmma_fence() {}
inline void wgmma_commit() { emulated::products_committed(); }
template <int Pending>
void wgmma_wait() {
  emulated::products_await(Pending);
}
template <int Count>
void wgmma_hold(float (&)[Count]) {}

inline void copy_operand(std::uint32_t (&to)[4][4], const std::uint32_t (&from)[4][4]) {
  std::memcpy(to, from, sizeof to);
}

// Bits 0 to 31: the first byte; 32 to 47: bytes per row; from 48 on: the distance of tiles of columns, in 16 bytes.
template <int RowBytes>
std::uint64_t descriptor(const void* tile, std::uint32_t tile_bytes = 0) {
  return shared_address(tile) | std::uint64_t{RowBytes} << 32 | std::uint64_t{tile_bytes / 16} << 48;
}
inline std::uint64_t advanced(std::uint64_t descriptor, std::uint32_t bytes) { return descriptor + bytes; }

inline std::uint32_t element_address(std::uint64_t descriptor, int row, int column) {
  const auto first = static_cast<std::uint32_t>(descriptor),
             row_bytes = static_cast<std::uint32_t>(descriptor >> 32 & 0xFFFF),
             tile_bytes = static_cast<std::uint32_t>(descriptor >> 48) * 16;
  const std::uint32_t columns = row_bytes / 2, c = static_cast<std::uint32_t>(column);
  const std::uint32_t tile = tile_bytes > 0 ? c / columns : 0;
  return swizzled(first + tile * tile_bytes + static_cast<std::uint32_t>(row) * row_bytes + (c - tile * columns) * 2,
                  row_bytes);
}
template <class T>
float element_of(std::uint64_t descriptor, int row, int column) {
  std::uint16_t bits;
  std::memcpy(&bits, shared_pointer(element_address(descriptor, row, column)), 2);
  return float_of<T>(bits);
}

using Eight = float __attribute__((vector_size(32)));

// Adds the product of two matrices to the warpgroup's accumulators, or starts them with it.
template <int N>
void accumulate_product(const emulated::Share (&shares)[128], const float (&left)[64][16], const float (&right)[16][N],
                        bool accumulate) {
  static_assert(N % 8 == 0);
  for (int row = 0; row < 64; ++row)
    for (int n = 0; n < N; n += 8) {
      const emulated::Share* const quad = shares + row / 16 * 32 + row % 8 * 4;
      const int at = element_at(n / 8, row % 16 / 8, 0);  // a thread has two of the columns
      Eight sum = {};
      for (int i = 0; accumulate && i < 8; ++i) sum[i] = quad[i / 2].d[at + i % 2];
      for (int k = 0; k < 16; ++k) {
        Eight of_right;
        std::memcpy(&of_right, &right[k][n], sizeof of_right);
        sum += left[row][k] * of_right;
      }
      for (int i = 0; i < 8; ++i) quad[i / 2].d[at + i % 2] = sum[i];
    }
}
// d (64 x N) = a b, or d += a b, once all threads of the warpgroup have called it.
template <class T, int N, bool TransposedB, class A>
void wgmma(float (&d)[N / 2], const A& a, std::uint64_t b, bool accumulate) {
  constexpr bool registers = !std::is_same_v<A, std::uint64_t>;
  emulated::Share share{d, {}, {}};
  if constexpr (registers)
    std::copy(a, a + 4, share.a);
  else
    share.descriptor = a;
  emulated::product(share, [b, accumulate](const emulated::Share(&shares)[128]) {
    static float left[64][16], right[16][N];
    for (int row = 0; row < 64; ++row)
      for (int k = 0; k < 16; ++k) {
        if constexpr (registers) {
          const emulated::Share& of = shares[row / 16 * 32 + row % 8 * 4 + k % 8 / 2];
          left[row][k] = float_of<T>(static_cast<std::uint16_t>(of.a[row % 16 / 8 + k / 8 * 2] >> 16 * (k % 2)));
        } else {
          left[row][k] = element_of<T>(shares[0].descriptor, row, k);
        }
      }
    for (int k = 0; k < 16; ++k)
      for (int n = 0; n < N; ++n) right[k][n] = TransposedB ? element_of<T>(b, k, n) : element_of<T>(b, n, k);
    accumulate_product<N>(shares, left, right, accumulate);
  });
}
// d (64 x 2 Half) = a^T b, or d += a^T b.
template <class T, int Half>
void wgmma_rows(float (&d)[Half], std::uint64_t a, std::uint64_t b, bool accumulate) {
  emulated::product({d, {}, a}, [b, accumulate](const emulated::Share(&shares)[128]) {
    static float left[64][16], right[16][2 * Half];
    for (int k = 0; k < 16; ++k) {
      for (int row = 0; row < 64; ++row) left[row][k] = element_of<T>(shares[0].descriptor, k, row);
      for (int n = 0; n < 2 * Half; ++n) right[k][n] = element_of<T>(b, k, n);
    }
    accumulate_product<2 * Half>(shares, left, right, accumulate);
  });
}

template <class T, int Size>
void multiply_tiles(float (&s)[32], const char* a, const char* b, bool adds = false) {
  constexpr int row_bytes = Size < 64 ? Size * 2 : 128;
  const std::uint64_t left = descriptor<row_bytes>(a), right = descriptor<row_bytes>(b);
  for (int i = 0; i < Size / 16; ++i) {
    const auto within = static_cast<std::uint32_t>(i / 4 * 64 * row_bytes + i % 4 * 32);
    wgmma<T, 64, false>(s, advanced(left, within), advanced(right, within), adds || i > 0);
  }
  wgmma_commit();
}

}  // namespace longstride::kernels::cuda
