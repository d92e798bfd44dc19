// Stands in for CUDA's header where a kernel's source is compiled for the CPU (tests/emulated/machine/block.h).
#pragma once
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>

#include "tests/emulated/machine/block.h"

#define __device__
#define __host__
#define __global__
#define __shared__
#define __forceinline__ inline
#define __grid_constant__
#define __launch_bounds__(...)
#define threadIdx (::longstride::emulated::thread_index())
#define blockIdx (::longstride::emulated::block_index())
#define gridDim (::longstride::emulated::grid_size())
#define blockDim (::longstride::emulated::Index3{::longstride::emulated::block_threads(), 1, 1})

using std::max;
using std::min;

struct float2 {
  float x, y;
};
struct float4 {
  float x, y, z, w;
};
struct int4 {
  std::int32_t x, y, z, w;
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
inline unsigned __ballot_sync(unsigned, bool value) {
  std::uint64_t mine[5] = {value ? 1u : 0u}, all[32][5];
  longstride::emulated::exchange(longstride::emulated::first_of_warp(), 32, mine, all);
  unsigned ballot = 0;
  for (unsigned i = 0; i < 32; ++i) ballot |= static_cast<unsigned>(all[i][0]) << i;
  return ballot;
}
inline bool __all_sync(unsigned mask, bool value) { return __ballot_sync(mask, value) == ~0u; }
inline bool __any_sync(unsigned mask, bool value) { return __ballot_sync(mask, value) != 0; }
template <class T, class F>
T reduced_over_warp(T value, F&& better) {
  std::uint64_t mine[5] = {}, all[32][5];
  std::memcpy(mine, &value, sizeof value);
  longstride::emulated::exchange(longstride::emulated::first_of_warp(), 32, mine, all);
  for (const auto& other : all) {
    T x;
    std::memcpy(&x, other, sizeof x);
    value = better(value, x);
  }
  return value;
}
template <class T>
T __reduce_min_sync(unsigned, T value) {
  return reduced_over_warp(value, [](T a, T b) { return std::min(a, b); });
}
template <class T>
T __reduce_max_sync(unsigned, T value) {
  return reduced_over_warp(value, [](T a, T b) { return std::max(a, b); });
}
// A block's threads are fibers of one thread.
template <class T>
T atomicAdd(T* to, T x) {
  const T before = *to;
  *to += x;
  return before;
}
inline float __fdividef(float a, float b) { return a / b; }
#define __log2f(x) std::log2(x)
inline void __nanosleep(unsigned) { longstride::emulated::wait_for_any_event(); }
inline void __syncwarp() { longstride::emulated::meet(longstride::emulated::first_of_warp(), 32); }
