// Several neighbouring elements read or written by one instruction, as floats.
#pragma once
#include <cstdint>

#include "kernels/base/cuda_types.cuh"

namespace longstride::kernels::cuda {

template <class T, int n>
struct alignas(sizeof(T) * n) Pack {
  T value[n];
};

template <int n, class T>
__device__ __forceinline__ void unpack(const Pack<T, n>& from, float (&to)[n]) {
  const Pack<T, n> pack = from;
#pragma unroll
  for (int i = 0; i < n; ++i) to[i] = to_float(pack.value[i]);
}

template <int n, class T>
__device__ __forceinline__ void load(const T* from, float (&to)[n]) {
  unpack(*reinterpret_cast<const Pack<T, n>*>(from), to);
}

template <int n, class T>
__device__ __forceinline__ void store(T* to, const float (&from)[n]) {
  Pack<T, n> pack;
#pragma unroll
  for (int i = 0; i < n; ++i) pack.value[i] = from_float<T>(from[i]);
  *reinterpret_cast<Pack<T, n>*>(to) = pack;
}

// The elements of a 16-byte pack.
template <class T>
constexpr int pack_of = 16 / static_cast<int>(sizeof(T));

inline bool aligned(const void* pointer, std::size_t bytes) {
  return reinterpret_cast<std::uintptr_t>(pointer) % bytes == 0;
}

inline std::int64_t divide_up(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

inline unsigned blocks_for(std::int64_t items, std::int64_t per_block) {
  return static_cast<unsigned>(divide_up(items, per_block));
}

// The sum over a warp, in every lane and in a fixed order.
__device__ __forceinline__ float warp_sum(float x) {
#pragma unroll
  for (int offset = 16; offset > 0; offset /= 2) x += __shfl_xor_sync(0xFFFFFFFFu, x, offset);
  return x;
}

__device__ __forceinline__ float warp_max(float x) {
#pragma unroll
  for (int offset = 16; offset > 0; offset /= 2) x = fmaxf(x, __shfl_xor_sync(0xFFFFFFFFu, x, offset));
  return x;
}

}  // namespace longstride::kernels::cuda
