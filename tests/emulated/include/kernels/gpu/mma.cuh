// Stands in for the kernels' header of this name where their source is compiled for the CPU
// (tests/emulated/machine/block.h).
#pragma once
#include <cstdint>

#include "kernels/gpu/fragment.cuh"

namespace longstride::kernels::cuda {

template <class T>
void multiply_add(float (&d)[4], const std::uint32_t (&a)[4], std::uint32_t b0, std::uint32_t b1) {
  const auto word = [](std::uint32_t low, std::uint32_t high) { return low | std::uint64_t{high} << 32; };
  const auto& all = emulated::exchange({word(a[0], a[1]), word(a[2], a[3]), word(b0, b1)});
  const auto element = [&](unsigned lane, unsigned which, unsigned e) {
    return float_of<T>(static_cast<std::uint16_t>(all[lane][which / 2] >> (32 * (which % 2) + 16 * e)));
  };
  const unsigned lane = threadIdx.x % 32;
  float left[2][16], right[2][16];  // rows and columns of this lane's elements
  for (unsigned k = 0; k < 16; ++k)
    for (unsigned i = 0; i < 2; ++i) {
      const unsigned of_pair = k % 8 / 2, half = k / 8;  // in the first lanes that hold them
      left[i][k] = element(lane / 4 * 4 + of_pair, i + 2 * half, k % 2);
      right[i][k] = element((lane % 4 * 2 + i) * 4 + of_pair, 4 + half, k % 2);
    }
  for (unsigned r = 0; r < 2; ++r)
    for (unsigned e = 0; e < 2; ++e)
      for (unsigned k = 0; k < 16; ++k) d[2 * r + e] += left[r][k] * right[e][k];
}

}  // namespace longstride::kernels::cuda
