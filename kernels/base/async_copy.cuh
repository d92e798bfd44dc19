// Copies from global to shared memory that a thread starts and waits for later. After its wait a thread may read what
// it copied itself; what other threads copied also requires a barrier.
#pragma once
#include <cstdint>

namespace longstride::kernels::cuda {

// `Value` is 4, 8 or 16 bytes, and so are both alignments.
template <class Value>
__device__ __forceinline__ void copy_async(Value* to, const void* from) {
  static_assert(sizeof(Value) == 4 || sizeof(Value) == 8 || sizeof(Value) == 16);
  const auto address = static_cast<std::uint32_t>(__cvta_generic_to_shared(to));
  if constexpr (sizeof(Value) == 16)
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(address), "l"(from) : "memory");
  else
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2;" ::"r"(address), "l"(from), "n"(sizeof(Value)) : "memory");
}

// end_of_copies() closes a group of all copies started since the last one; the wait leaves at most the `pending` newest
// groups outstanding.
__device__ __forceinline__ void end_of_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int pending>
__device__ __forceinline__ void wait_for_copies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(pending) : "memory");
}

}  // namespace longstride::kernels::cuda
