// Barriers within a block. An mbarrier (Hopper) is 8 bytes of shared memory, 8-byte aligned: a phase is complete when
// the expected number of arrivals and of announced bytes has come, and phases alternate in parity. A named barrier is
// one of the multiprocessor's sixteen, for some of a block's warps; 0 is __syncthreads.
#pragma once
#include <cstdint>

#include "kernels/gpu/shared.cuh"

namespace longstride::kernels::cuda {

// mbarrier.init
__device__ inline void barrier_init(std::uint64_t* barrier, int arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(barrier)), "r"(arrivals) : "memory");
}
// Call after the inits, then __syncthreads, before any other thread or TMA uses the barriers. fence.mbarrier_init
__device__ inline void barrier_init_fence() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }

// mbarrier.arrive
__device__ inline void barrier_arrive(std::uint64_t* barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(barrier)) : "memory");
}
__device__ inline void barrier_arrive(std::uint64_t* barrier, std::uint32_t times) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(barrier)), "r"(times) : "memory");
}
// Arrives once and announces `bytes` that bulk copies will write. mbarrier.arrive.expect_tx
__device__ inline void barrier_arrive_expect(std::uint64_t* barrier, std::uint32_t bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(barrier)), "r"(bytes)
               : "memory");
}

// Waits until the phase of this parity is complete. A fresh barrier is in phase 0: wait(0) waits for the first
// completion, wait(1) returns at once. mbarrier.try_wait
__device__ inline void barrier_wait(std::uint64_t* barrier, std::uint32_t parity) {
  asm volatile(
      "{\n"
      ".reg .pred done;\n"
      "again:\n"
      "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
      "@done bra over;\n"
      "bra again;\n"
      "over:\n"
      "}\n" ::"r"(shared_address(barrier)),
      "r"(parity)
      : "memory");
}
// True if that phase is complete, at the latest after a time limit of the system.
__device__ inline bool barrier_passed(std::uint64_t* barrier, std::uint32_t parity) {
  std::uint32_t passed;
  asm volatile(
      "{\n"
      ".reg .pred done;\n"
      "mbarrier.try_wait.parity.shared::cta.b64 done, [%1], %2;\n"
      "selp.u32 %0, 1, 0, done;\n"
      "}\n"
      : "=r"(passed)
      : "r"(shared_address(barrier)), "r"(parity)
      : "memory");
  return passed != 0;
}
// True if that phase is complete now. mbarrier.test_wait
__device__ inline bool barrier_passed_now(std::uint64_t* barrier, std::uint32_t parity) {
  std::uint32_t passed;
  asm volatile(
      "{\n"
      ".reg .pred done;\n"
      "mbarrier.test_wait.parity.shared::cta.b64 done, [%1], %2;\n"
      "selp.u32 %0, 1, 0, done;\n"
      "}\n"
      : "=r"(passed)
      : "r"(shared_address(barrier)), "r"(parity)
      : "memory");
  return passed != 0;
}
// As barrier_wait, but seconds of waiting, which mean a bug, trap instead of hanging. For barriers that other blocks
// complete: their data is in this block's shared memory before the barrier counts it, so acquire semantics at block
// scope suffice; cluster scope would invalidate the first-level cache at every wait.
__device__ inline void barrier_wait_or_trap(std::uint64_t* barrier, std::uint32_t parity) {
  constexpr long long most_clocks = 1ll << 33;
  if (barrier_passed(barrier, parity)) return;
  const long long begin = clock64();
  while (!barrier_passed(barrier, parity))
    if (clock64() - begin > most_clocks) __trap();
}

// bar.sync, bar.arrive: `threads` counts those that wait and those that only arrive.
__device__ inline void named_barrier_sync(int id, int threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}
__device__ inline void named_barrier_arrive(int id, int threads) {
  asm volatile("bar.arrive %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

}  // namespace longstride::kernels::cuda
