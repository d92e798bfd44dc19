// cp.async: copies from global to shared memory that a thread starts and waits for later, for compute capability 8.0
// and later. After its wait a thread may read what it copied itself; what other threads copied also requires a barrier.
#pragma once
#include <cstdint>

#include "kernels/gpu/shared.cuh"

namespace longstride::kernels::cuda {

// 16 bytes to an address of shared memory, bypassing the first-level cache. cp.async.cg
__device__ inline void copy_async_16(std::uint32_t to, const void* from) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(from) : "memory");
}
// `Value` is 4, 8 or 16 bytes, and so are both alignments. cp.async.cg for 16 bytes, cp.async.ca for fewer
template <class Value>
__device__ __forceinline__ void copy_async(Value* to, const void* from) {
  static_assert(sizeof(Value) == 4 || sizeof(Value) == 8 || sizeof(Value) == 16);
  const std::uint32_t address = shared_address(to);
  if constexpr (sizeof(Value) == 16)
    copy_async_16(address, from);
  else
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2;" ::"r"(address), "l"(from), "n"(sizeof(Value)) : "memory");
}
// Copies 16 or 4 bytes, or writes zeros unless `valid`; `from` must be an address of global memory either way.
__device__ inline void copy_async_16(void* to, const void* from, bool valid) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(to)), "l"(from), "r"(valid ? 16 : 0)
               : "memory");
}
__device__ inline void copy_async_4(void* to, const void* from, bool valid) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(shared_address(to)), "l"(from), "r"(valid ? 4 : 0)
               : "memory");
}

// copies_commit() closes a group of all copies started since the last one; copies_wait leaves at most the `Pending`
// newest groups outstanding, copies_wait_all none, closed or not. cp.async.commit_group, .wait_group, .wait_all
__device__ inline void copies_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int Pending>
__device__ inline void copies_wait() {
  asm volatile("cp.async.wait_group %0;" ::"n"(Pending) : "memory");
}
__device__ __forceinline__ void copies_wait_all() { asm volatile("cp.async.wait_all;" ::: "memory"); }

// This thread arrives at an mbarrier (barrier.cuh) once all its copies so far are complete. cp.async.mbarrier.arrive
__device__ inline void copies_arrive(std::uint64_t* barrier) {
  asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(shared_address(barrier)) : "memory");
}

}  // namespace longstride::kernels::cuda
