// Which thread this is, and what the threads of a warp or of a warpgroup have in common.
#pragma once
#include <cuda_runtime.h>

#include <cstdint>

namespace longstride::kernels::cuda {

inline constexpr int warp_threads = 32, warpgroup_threads = 128, warpgroup_warps = warpgroup_threads / warp_threads;

// In blocks of one dimension: the thread's number, its number within its warp, and its warp's number.
__device__ inline int this_thread() { return static_cast<int>(threadIdx.x); }
__device__ inline int this_lane() { return static_cast<int>(threadIdx.x % warp_threads); }
__device__ inline int this_warp() { return static_cast<int>(threadIdx.x / warp_threads); }
__device__ inline int this_warpgroup() { return static_cast<int>(threadIdx.x / warpgroup_threads); }

// A value that is equal in all lanes of a warp, in a form that the compiler recognises: what is computed from it
// (tiles, descriptors, branches) then uses uniform registers, which wgmma and TMA need for their operands.
// shfl.sync.idx
__device__ inline std::int32_t uniform(std::int32_t x) { return __shfl_sync(~0u, x, 0); }

// Registers of a warpgroup (Hopper): called by all its threads; Count is a multiple of 8 in [24, 256]. Taking waits
// until others have given what the block lacks, so for ever if it began with fewer than its warpgroups take together; a
// block of 640 threads begins with at most 96 each. setmaxnreg
template <int Count>
__device__ inline void registers_take() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(Count));
}
template <int Count>
__device__ inline void registers_give() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(Count));
}

}  // namespace longstride::kernels::cuda
