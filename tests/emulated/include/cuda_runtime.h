// Stands in for CUDA's header where a kernel's source is compiled for the CPU (tests/emulated/machine/block.h).
#pragma once
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstring>

#include "tests/emulated/machine/block.h"

#define __device__
#define __host__
#define __global__
#define __shared__ thread_local  // a block's threads are fibers of one thread, and blocks run one after the other
#define __align__(...)
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
inline uint4 make_uint4(std::uint32_t x, std::uint32_t y, std::uint32_t z, std::uint32_t w) { return {x, y, z, w}; }
struct dim3 {
  unsigned x = 1, y = 1, z = 1;
  dim3() = default;
  dim3(unsigned a, unsigned b = 1, unsigned c = 1) : x(a), y(b), z(c) {}
};

template <class T>
T __ldg(const T* p) {
  return *p;
}
// Past the caches, of which there are none.
template <class T>
void __stcs(T* to, T x) {
  *to = x;
}
inline std::uint32_t __umulhi(std::uint32_t a, std::uint32_t b) {
  return static_cast<std::uint32_t>(std::uint64_t{a} * b >> 32);
}
// Byte i of the result is the byte of a, and of b after it, that four bits of the selector number.
inline std::uint32_t __byte_perm(std::uint32_t a, std::uint32_t b, std::uint32_t selector) {
  const std::uint64_t both = std::uint64_t{b} << 32 | a;
  std::uint32_t result = 0;
  for (unsigned i = 0; i < 4; ++i)
    result |= static_cast<std::uint32_t>(both >> 8 * (selector >> 4 * i & 7) & 0xFF) << 8 * i;
  return result;
}
inline int __ffs(int x) { return __builtin_ffs(x); }
inline int __popc(unsigned x) { return __builtin_popcount(x); }
inline float __uint_as_float(std::uint32_t x) {
  float y;
  std::memcpy(&y, &x, 4);
  return y;
}

namespace longstride::emulated {
// Everybody's value among these lanes of the warp.
template <class T>
std::array<T, 32> of_warp(T value, unsigned lanes = ~0u) {
  Words mine{};
  std::memcpy(mine.data(), &value, sizeof value);
  const auto& all = exchange(mine, lanes);
  std::array<T, 32> values;
  for (std::size_t i = 0; i < 32; ++i) std::memcpy(&values[i], all[i].data(), sizeof values[i]);
  return values;
}
}  // namespace longstride::emulated

template <class T>
T __shfl_sync(unsigned lanes, T value, int lane) {
  return longstride::emulated::of_warp(value, lanes)[static_cast<unsigned>(lane)];
}
template <class T>
T __shfl_xor_sync(unsigned lanes, T value, int mask) {
  return longstride::emulated::of_warp(value, lanes)[threadIdx.x % 32 ^ static_cast<unsigned>(mask)];
}
template <class T>
T __shfl_up_sync(unsigned lanes, T value, int offset) {
  const unsigned lane = threadIdx.x % 32, by = static_cast<unsigned>(offset);
  return longstride::emulated::of_warp(value, lanes)[lane >= by ? lane - by : lane];
}
inline bool __all_sync(unsigned, bool value) {
  const auto all = longstride::emulated::of_warp(value);
  return std::all_of(all.begin(), all.end(), [](bool x) { return x; });
}
inline bool __any_sync(unsigned, bool value) {
  const auto all = longstride::emulated::of_warp(value);
  return std::any_of(all.begin(), all.end(), [](bool x) { return x; });
}
inline unsigned __ballot_sync(unsigned, bool value) {
  const auto all = longstride::emulated::of_warp(value);
  unsigned bits = 0;
  for (unsigned i = 0; i < 32; ++i) bits |= static_cast<unsigned>(all[i]) << i;
  return bits;
}
inline unsigned __match_any_sync(unsigned, int value) {
  const auto all = longstride::emulated::of_warp(value);
  unsigned bits = 0;
  for (unsigned i = 0; i < 32; ++i) bits |= static_cast<unsigned>(all[i] == value) << i;
  return bits;
}
template <class T>
T __reduce_min_sync(unsigned, T value) {
  const auto all = longstride::emulated::of_warp(value);
  return *std::min_element(all.begin(), all.end());
}
template <class T>
T __reduce_max_sync(unsigned, T value) {
  const auto all = longstride::emulated::of_warp(value);
  return *std::max_element(all.begin(), all.end());
}
// A block's threads are fibers of one thread.
template <class T>
T atomicAdd(T* to, T x) {
  const T before = *to;
  *to += x;
  return before;
}
inline float __fmul_rn(float a, float b) { return a * b; }
inline float __fdividef(float a, float b) { return a / b; }
#define __log2f(x) std::log2(x)
inline void __nanosleep(unsigned) { longstride::emulated::wait_for_any_event(); }
inline void __syncwarp() { longstride::emulated::exchange({}); }
inline void __syncthreads() { longstride::emulated::named_barrier(0, longstride::emulated::block_threads()); }
