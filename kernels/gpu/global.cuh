// Global memory beyond what a plain load or store says: loads at a time or on a condition, prefetches, sums, and the
// exchange of words between blocks.
#pragma once
#include <cstdint>

namespace longstride::kernels::cuda {

// A load that the compiler cannot defer to the first use of its value. ld.global.nc
__device__ inline float load_now(const void* from) {
  float x;
  asm volatile("ld.global.nc.f32 %0, [%1];" : "=f"(x) : "l"(from));
  return x;
}
// Zeros unless `wanted`; read without a place in the first-level cache, and without a branch.
// ld.global.nc.L1::no_allocate.v4
__device__ __forceinline__ uint4 load_or_zero(const uint4* from, bool wanted) {
  uint4 x = make_uint4(0, 0, 0, 0);
  asm volatile("{.reg .pred p; setp.ne.s32 p, %5, 0; @p ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];}"
               : "+r"(x.x), "+r"(x.y), "+r"(x.z), "+r"(x.w)
               : "l"(from), "r"(static_cast<int>(wanted)));
  return x;
}
// ld.global.nc
__device__ __forceinline__ float load_or_zero(const float* from, bool wanted) {
  float x = 0;
  asm volatile("{.reg .pred p; setp.ne.s32 p, %2, 0; @p ld.global.nc.f32 %0, [%1];}"
               : "+f"(x)
               : "l"(from), "r"(static_cast<int>(wanted)));
  return x;
}
// ld.global.nc.v2
__device__ __forceinline__ float2 load_or_zero(const float2* from, bool wanted) {
  float2 x{0, 0};
  asm volatile("{.reg .pred p; setp.ne.s32 p, %3, 0; @p ld.global.nc.v2.f32 {%0, %1}, [%2];}"
               : "+f"(x.x), "+f"(x.y)
               : "l"(from), "r"(static_cast<int>(wanted)));
  return x;
}

// Prefetches into the second-level cache. Called by one warp. cp.async.bulk.prefetch.L2, or prefetch.global.L2 before
// Hopper
__device__ __forceinline__ void prefetch_bytes(const char* from, std::uint32_t bytes) {
#if __CUDA_ARCH__ >= 900
  if (threadIdx.x % 32 == 0)
    asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(from), "r"(bytes) : "memory");
#else
  for (std::uint32_t b = threadIdx.x % 32 * 128; b < bytes; b += 32 * 128)
    asm volatile("prefetch.global.L2 [%0];" ::"l"(from + b) : "memory");
#endif
}

// 8 bytes that other blocks see whole, in no order with other accesses. st.relaxed.gpu, ld.relaxed.gpu.v2
__device__ __forceinline__ void store_relaxed(unsigned long long* to, unsigned long long word) {
  asm volatile("st.relaxed.gpu.global.u64 [%0], %1;" ::"l"(to), "l"(word) : "memory");
}
__device__ __forceinline__ void load_relaxed(const unsigned long long* from, unsigned long long& a,
                                             unsigned long long& b) {
  asm volatile("ld.relaxed.gpu.global.v2.u64 {%0, %1}, [%2];" : "=l"(a), "=l"(b) : "l"(from) : "memory");
}
// Adds without waiting for what is there. red.global.add.v2.f32, PTX ISA 8.1, sm_90
__device__ __forceinline__ void add_to_global(float2* to, float2 x) {
  asm volatile("red.global.add.v2.f32 [%0], {%1, %2};" ::"l"(to), "f"(x.x), "f"(x.y) : "memory");
}

// Counts one up after all earlier accesses of this thread. red.release.gpu.add
__device__ __forceinline__ void count_release(unsigned* counter) {
  asm volatile("red.release.gpu.global.add.u32 [%0], 1;" ::"l"(counter) : "memory");
}
// Stores after all earlier accesses of this thread. st.release.gpu
__device__ __forceinline__ void store_release(unsigned* to, unsigned value) {
  asm volatile("st.release.gpu.global.u32 [%0], %1;" ::"l"(to), "r"(value) : "memory");
}
// Reads before all later accesses of this thread. ld.acquire.gpu
__device__ __forceinline__ unsigned load_acquire(const unsigned* counter) {
  unsigned now;
  asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(now) : "l"(counter) : "memory");
  return now;
}

}  // namespace longstride::kernels::cuda
