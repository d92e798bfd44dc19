// Stands in for the kernels' header of this name where their source is compiled for the CPU
// (tests/emulated/machine/block.h).
#pragma once
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>
#include <type_traits>

#include "kernels/gpu/lane.cuh"
#include "kernels/gpu/shared.cuh"

namespace longstride::kernels::cuda {

constexpr int element_at(int j, int r, int e = 0) { return 4 * j + 2 * r + e; }

template <class T>
float float_of(std::uint16_t bits) {
  T x;
  std::memcpy(&x, &bits, 2);
  if constexpr (std::is_same_v<T, __nv_bfloat16>)
    return __bfloat162float(x);
  else
    return __half2float(x);
}
template <class T>
std::uint16_t bits_of(float x) {
  T rounded;
  if constexpr (std::is_same_v<T, __nv_bfloat16>)
    rounded = __float2bfloat16_rn(x);
  else
    rounded = __float2half_rn(x);
  std::uint16_t bits;
  std::memcpy(&bits, &rounded, 2);
  return bits;
}

template <class T>
std::uint32_t pack(float low, float high) {
  return bits_of<T>(low) | std::uint32_t{bits_of<T>(high)} << 16;
}
template <class T>
float2 unpack(std::uint32_t packed) {
  return {float_of<T>(static_cast<std::uint16_t>(packed)), float_of<T>(static_cast<std::uint16_t>(packed >> 16))};
}
template <class T, int Count>
void pack_operand(std::uint32_t (&a)[4], const float (&d)[Count], int k) {
  for (int i = 0; i < 4; ++i) a[i] = pack<T>(d[8 * k + 2 * i], d[8 * k + 2 * i + 1]);
}

// Every lane stores its own elements at the rows whose addresses the warp's lanes have given.
inline void store_fragments(void* row, const std::uint32_t (&r)[4], bool transposed) {
  const auto& all = emulated::exchange({reinterpret_cast<std::uintptr_t>(row)});
  const unsigned lane = threadIdx.x % 32;
  for (unsigned m = 0; m < 4; ++m)
    for (unsigned e = 0; e < 2; ++e) {
      const unsigned i = lane / 4, j = lane % 4 * 2 + e, to_row = transposed ? j : i, to_column = transposed ? i : j;
      const auto bits = static_cast<std::uint16_t>(r[m] >> 16 * e);
      std::memcpy(reinterpret_cast<char*>(all[m * 8 + to_row][0]) + to_column * 2, &bits, 2);
    }
}
// The reverse.
inline void load_fragments(std::uint32_t (&r)[4], const void* row, bool transposed) {
  const auto& all = emulated::exchange({reinterpret_cast<std::uintptr_t>(row)});
  const unsigned lane = threadIdx.x % 32;
  for (unsigned m = 0; m < 4; ++m) {
    r[m] = 0;
    for (unsigned e = 0; e < 2; ++e) {
      const unsigned i = lane / 4, j = lane % 4 * 2 + e, from_row = transposed ? j : i,
                     from_column = transposed ? i : j;
      std::uint16_t bits;
      std::memcpy(&bits, reinterpret_cast<const char*>(all[m * 8 + from_row][0]) + from_column * 2, 2);
      r[m] |= std::uint32_t{bits} << 16 * e;
    }
  }
}
inline void load_matrices(std::uint32_t (&r)[4], const void* row) { load_fragments(r, row, false); }
inline void load_matrices_transposed(std::uint32_t (&r)[4], const void* row) { load_fragments(r, row, true); }
inline void store_matrices(void* row, std::uint32_t a, std::uint32_t b, std::uint32_t c, std::uint32_t d) {
  store_fragments(row, {a, b, c, d}, false);
}
inline void store_matrices_transposed(void* row, const std::uint32_t (&r)[4]) { store_fragments(row, r, true); }

inline std::uint32_t transposed(std::uint32_t matrix) {
  const auto& all = emulated::exchange({matrix});
  const unsigned lane = threadIdx.x % 32, row = lane / 4;
  std::uint32_t result = 0;
  for (unsigned e = 0; e < 2; ++e) {
    const unsigned from_row = lane % 4 * 2 + e;
    result |= static_cast<std::uint32_t>(all[from_row * 4 + row / 2][0] >> 16 * (row % 2) & 0xFFFF) << 16 * e;
  }
  return result;
}

// In each quad, lane q's v[i] becomes lane i's v[q].
inline void transpose_quad(std::uint32_t (&v)[4]) {
  const auto& all = emulated::exchange({v[0], v[1], v[2], v[3]});
  const unsigned lane = threadIdx.x % 32;
  for (unsigned i = 0; i < 4; ++i) v[i] = static_cast<std::uint32_t>(all[lane / 4 * 4 + i][lane % 4]);
}

}  // namespace longstride::kernels::cuda
