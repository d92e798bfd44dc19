// Stands in for CUDA's header where a kernel's source is compiled for the CPU (tests/emulated/block.h).
#pragma once
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>

#include "tests/emulated/block.h"

#define __device__
#define __host__
#define __global__
#define __shared__
#define __forceinline__ inline
#define __grid_constant__
#define __launch_bounds__(...)
#define threadIdx (::longstride::emulated::thread_index())
#define blockIdx (::longstride::emulated::block_index())
#define blockDim (::longstride::emulated::Index3{::longstride::emulated::block_threads(), 1, 1})

using std::max;
using std::min;

struct float2 {
  float x, y;
};
struct float4 {
  float x, y, z, w;
};
struct uint4 {
  std::uint32_t x, y, z, w;
};
struct dim3 {
  unsigned x = 1, y = 1, z = 1;
  dim3() = default;
  dim3(unsigned a, unsigned b = 1, unsigned c = 1) : x(a), y(b), z(c) {}
};

template <class T>
T __ldg(const T* p) {
  return *p;
}
inline std::uint32_t __umulhi(std::uint32_t a, std::uint32_t b) {
  return static_cast<std::uint32_t>(std::uint64_t{a} * b >> 32);
}
inline float __uint_as_float(std::uint32_t x) {
  float y;
  std::memcpy(&y, &x, 4);
  return y;
}

namespace longstride::emulated {
inline unsigned first_of_warp() { return thread_index().x / 32 * 32; }
// Everybody's value in the warp.
template <class T>
T of_lane(T value, unsigned lane) {
  std::uint64_t mine[5] = {}, all[32][5];
  std::memcpy(mine, &value, sizeof value);
  exchange(first_of_warp(), 32, mine, all);
  T result;
  std::memcpy(&result, all[lane], sizeof result);
  return result;
}
}  // namespace longstride::emulated

template <class T>
T __shfl_sync(unsigned, T value, int lane) {
  return longstride::emulated::of_lane(value, static_cast<unsigned>(lane));
}
template <class T>
T __shfl_xor_sync(unsigned, T value, int mask) {
  return longstride::emulated::of_lane(value, threadIdx.x % 32 ^ static_cast<unsigned>(mask));
}
inline bool __all_sync(unsigned, bool value) {
  std::uint64_t mine[5] = {value ? 1u : 0u}, all[32][5];
  longstride::emulated::exchange(longstride::emulated::first_of_warp(), 32, mine, all);
  return std::all_of(all, all + 32, [](const auto& x) { return x[0] != 0; });
}
inline void __syncwarp() { longstride::emulated::meet(longstride::emulated::first_of_warp(), 32); }
