// Several neighbouring elements read or written by one instruction, as floats.
#pragma once
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "kernels/base/cuda_types.cuh"

namespace longstride::kernels::cuda {

template <class T, int n>
struct alignas(sizeof(T) * n) Pack {
  T value[n];
};

// A Pack as a thread holds it in registers between memory and arithmetic: 4, 8 or 16 bytes, read and written whole.
template <class T, int n>
struct alignas(sizeof(T) * n) Words {
  static constexpr int count = sizeof(T) * n / 4;
  static_assert(sizeof(T) * n == 4 * count && (count == 1 || count == 2 || count == 4));
  using Vector =
      std::conditional_t<count == 1, std::uint32_t, std::conditional_t<count == 2, std::uint64_t, unsigned __int128>>;
  std::uint32_t word[count];
};

template <int n, class T>
__device__ __forceinline__ Words<T, n> read(const T* from) {
  const auto vector = *reinterpret_cast<const typename Words<T, n>::Vector*>(from);
  Words<T, n> words;
  memcpy(&words, &vector, sizeof(words));
  return words;
}

template <class T, int n>
__device__ __forceinline__ void write(T* to, const Words<T, n>& words) {
  typename Words<T, n>::Vector vector;
  memcpy(&vector, &words, sizeof(words));
  *reinterpret_cast<typename Words<T, n>::Vector*>(to) = vector;
}

template <class T, int n>
__device__ __forceinline__ void unpack(const Words<T, n>& from, float (&to)[n]) {
  if constexpr (DtypeOf<T>::value == Dtype::f32) {
#pragma unroll
    for (int i = 0; i < n; ++i) to[i] = __uint_as_float(from.word[i]);
  } else {
#pragma unroll
    for (int i = 0; i < n; i += 2) {
      const std::uint32_t pair = from.word[i / 2];
      if constexpr (DtypeOf<T>::value == Dtype::bf16) {  // the upper half of a float: one instruction each
        to[i] = __uint_as_float(pair << 16);
        to[i + 1] = __uint_as_float(pair & 0xFFFF0000u);
      } else {
        to[i] = __half2float(__ushort_as_half(static_cast<unsigned short>(pair)));
        to[i + 1] = __half2float(__ushort_as_half(static_cast<unsigned short>(pair >> 16)));
      }
    }
  }
}

// Rounds; 16-bit elements take one instruction per two.
template <class T, int n>
__device__ __forceinline__ Words<T, n> pack(const float (&from)[n]) {
  Words<T, n> to;
  if constexpr (DtypeOf<T>::value == Dtype::f32) {
#pragma unroll
    for (int i = 0; i < n; ++i) to.word[i] = __float_as_uint(from[i]);
  } else {
#pragma unroll
    for (int i = 0; i < n; i += 2) {
      using Pair = std::conditional_t<DtypeOf<T>::value == Dtype::bf16, __nv_bfloat162, __half2>;
      Pair pair;
      if constexpr (DtypeOf<T>::value == Dtype::bf16)
        pair = __floats2bfloat162_rn(from[i], from[i + 1]);
      else
        pair = __floats2half2_rn(from[i], from[i + 1]);
      memcpy(&to.word[i / 2], &pair, sizeof(pair));
    }
  }
  return to;
}

template <int n, class T>
__device__ __forceinline__ void load(const T* from, float (&to)[n]) {
  if constexpr (sizeof(T) * n > 16) {
    load<n / 2>(from, reinterpret_cast<float(&)[n / 2]>(to[0]));
    load<n / 2>(from + n / 2, reinterpret_cast<float(&)[n / 2]>(to[n / 2]));
  } else if constexpr (sizeof(T) * n % 4 == 0) {
    unpack(read<n>(from), to);
  } else {
    for (int i = 0; i < n; ++i) to[i] = to_float(from[i]);
  }
}

template <int n, class T>
__device__ __forceinline__ void store(T* to, const float (&from)[n]) {
  if constexpr (sizeof(T) * n > 16) {
    store<n / 2>(to, reinterpret_cast<const float(&)[n / 2]>(from[0]));
    store<n / 2>(to + n / 2, reinterpret_cast<const float(&)[n / 2]>(from[n / 2]));
  } else if constexpr (sizeof(T) * n % 4 == 0) {
    write(to, pack<T>(from));
  } else {
    for (int i = 0; i < n; ++i) to[i] = from_float<T>(from[i]);
  }
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

// x, of which the compiler then does not know how it was computed.
__device__ __forceinline__ float opaque(float x) {
  asm volatile("" : "+f"(x));
  return x;
}

// The sum over a warp, in every lane and in a fixed order.
__device__ __forceinline__ float warp_sum(float x) {
#pragma unroll
  for (int offset = 16; offset > 0; offset /= 2) x += __shfl_xor_sync(0xFFFFFFFFu, x, offset);
  return x;
}

// One butterfly step over 2 x `half` values: adds this lane's and lane ^ offset's values and keeps one half. Returns
// true if it kept the upper half. Reducing several values this way costs barely more shuffles than reducing one.
template <int n>
__device__ __forceinline__ bool keep_half(float (&x)[n], int half, int offset) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const bool upper = (lane & offset) != 0;
#pragma unroll
  for (int e = 0; e < half; ++e) {
    const float other = __shfl_xor_sync(0xFFFFFFFFu, upper ? x[e] : x[e + half], offset);
    x[e] = (upper ? x[e + half] : x[e]) + other;
  }
  return upper;
}

__device__ __forceinline__ float warp_max(float x) {
#pragma unroll
  for (int offset = 16; offset > 0; offset /= 2) x = fmaxf(x, __shfl_xor_sync(0xFFFFFFFFu, x, offset));
  return x;
}

}  // namespace longstride::kernels::cuda
