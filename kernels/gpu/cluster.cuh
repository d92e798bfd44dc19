// The blocks of a cluster (Hopper): which one this is, and stores into another block's shared memory that complete on
// an mbarrier (barrier.cuh) there. PTX ISA 8.1, sm_90.
#pragma once
#include <cuda_runtime.h>

#include <cstdint>

namespace longstride::kernels::cuda {

// %cluster_ctarank
__device__ inline int cluster_rank() {
  std::uint32_t rank;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return static_cast<int>(rank);
}

// Called by all threads of all blocks of the cluster; writes before it are visible after it. barrier.cluster
__device__ inline void cluster_sync() {
  asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::: "memory");
}

// The address in block `rank` that corresponds to `address` in this block's shared memory. mapa
__device__ inline std::uint32_t address_in(std::uint32_t address, int rank) {
  std::uint32_t there;
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(address), "r"(rank));
  return there;
}

// Stores 16 bytes in another block (or this one) and completes them on a barrier of that block. Both addresses come
// from address_in. st.async
__device__ inline void send_16(std::uint32_t to, const uint4& x, std::uint32_t barrier) {
  asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.b32 [%0], {%1, %2, %3, %4}, [%5];" ::"r"(to),
               "r"(x.x), "r"(x.y), "r"(x.z), "r"(x.w), "r"(barrier)
               : "memory");
}

}  // namespace longstride::kernels::cuda
