// Stands in for the kernels' header of this name where their source is compiled for the CPU
// (tests/emulated/machine/block.h).
#pragma once
#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/gpu/shared.cuh"
#include "tests/emulated/machine/block.h"

namespace longstride::kernels::cuda {

inline constexpr int warp_threads = 32, warpgroup_threads = 128, warpgroup_warps = warpgroup_threads / warp_threads;

inline int this_thread() { return static_cast<int>(threadIdx.x); }
inline int this_lane() { return static_cast<int>(threadIdx.x % warp_threads); }
inline int this_warp() { return static_cast<int>(threadIdx.x / warp_threads); }
inline int this_warpgroup() { return static_cast<int>(threadIdx.x / warpgroup_threads); }
inline std::int32_t uniform(std::int32_t x) { return __shfl_sync(~0u, x, 0); }
template <int Count>
void registers_take() {
  emulated::registers_take(Count);
}
template <int Count>
void registers_give() {
  emulated::registers_give(Count);
}

}  // namespace longstride::kernels::cuda
