// Stands in for the kernels' header of this name where their source is compiled for the CPU
// (tests/emulated/machine/block.h).
#pragma once
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <stdexcept>

#include "kernels/base/cuda_types.cuh"

namespace longstride::kernels::cuda {

// An access of several elements is refused if a GPU would refuse its address.
template <int n, class T>
void expect_aligned(const T* at) {
  if (reinterpret_cast<std::uintptr_t>(at) % (sizeof(T) * n > 16 ? 16 : sizeof(T) * n) != 0)
    throw std::logic_error("an access of several elements that is not aligned");
}
template <int n, class T>
void load(const T* from, float (&to)[n]) {
  expect_aligned<n>(from);
  for (int i = 0; i < n; ++i) to[i] = to_float(from[i]);
}
template <int n, class T>
void store(T* to, const float (&from)[n]) {
  expect_aligned<n>(to);
  for (int i = 0; i < n; ++i) to[i] = from_float<T>(from[i]);
}

template <class T, int n>
struct Pack {
  T value[n];
};
template <class T, int n>
struct alignas(sizeof(T) * n) Words {
  T value[n];
};
template <class T>
constexpr int pack_of = 16 / static_cast<int>(sizeof(T));
template <int n, class T>
Words<T, n> read(const T* from) {
  expect_aligned<n>(from);
  Words<T, n> words;
  std::memcpy(words.value, from, sizeof words);
  return words;
}
template <class T, int n>
void unpack(const Words<T, n>& from, float (&to)[n]) {
  load<n>(from.value, to);
}

inline float warp_sum(float x) {
  for (int offset = 16; offset > 0; offset /= 2) x += __shfl_xor_sync(~0u, x, offset);
  return x;
}

inline float warp_max(float x) {
  for (int offset = 16; offset > 0; offset /= 2) x = std::fmax(x, __shfl_xor_sync(~0u, x, offset));
  return x;
}

inline bool aligned(const void* pointer, std::size_t bytes) {
  return reinterpret_cast<std::uintptr_t>(pointer) % bytes == 0;
}
inline std::int64_t divide_up(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }
inline unsigned blocks_for(std::int64_t items, std::int64_t per_block) {
  return static_cast<unsigned>(divide_up(items, per_block));
}
inline float opaque(float x) { return x; }

}  // namespace longstride::kernels::cuda
