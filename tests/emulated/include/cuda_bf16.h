// Stands in for CUDA's header where a kernel's source is compiled for the CPU (tests/emulated/machine/block.h).
#pragma once
#include <cstdint>
#include <cstring>

#include "cuda_runtime.h"

struct __nv_bfloat16 {
  std::uint16_t bits;
};
inline float __bfloat162float(__nv_bfloat16 x) { return __uint_as_float(std::uint32_t{x.bits} << 16); }
// To the nearest, of two equally near ones the even one.
inline __nv_bfloat16 __float2bfloat16_rn(float x) {
  std::uint32_t bits;
  std::memcpy(&bits, &x, 4);
  if (x != x) return {0x7FFF};
  return {static_cast<std::uint16_t>((bits + 0x7FFF + (bits >> 16 & 1)) >> 16)};
}
