// Stands in for CUDA's header where a kernel's source is compiled for the CPU (tests/emulated/machine/block.h).
#pragma once
#include "cuda_runtime.h"

struct __half {
  _Float16 value;
};
struct __half2 {
  __half x, y;
};
inline float __half2float(__half x) { return static_cast<float>(x.value); }
inline __half __float2half_rn(float x) { return {static_cast<_Float16>(x)}; }
