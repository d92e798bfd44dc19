// Copies by the Tensor Memory Accelerator of Hopper (TMA): one thread starts a copy of a box of a tensor, whose map
// (tensor_map.h) is a kernel parameter, or of contiguous bytes. Loads complete on an mbarrier (barrier.cuh), stores in
// groups. PTX ISA 8.0, sm_90.
#pragma once
#include <cuda.h>
#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/gpu/shared.cuh"

namespace longstride::kernels::cuda {

// The first element of a box of a 5-D map, the dimension of neighbours in memory first.
struct Coordinates {
  std::int32_t c[5];
};
// Coordinates in a matrix_map (tensor_map.h).
__device__ inline Coordinates matrix_coordinates(std::int32_t column, std::int32_t row) {
  return {{column, 0, row, 0, 0}};
}

// Copies one box to shared memory; what is beyond the map is zero. Its bytes complete on `barrier`.
// cp.async.bulk.tensor.5d.shared::cluster.global
__device__ inline void tma_load(void* to, const CUtensorMap* map, const Coordinates& at, std::uint64_t* barrier) {
  asm volatile(
      "cp.async.bulk.tensor.5d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %5, %6, "
      "%7}], [%2];" ::"r"(shared_address(to)),
      "l"(reinterpret_cast<std::uint64_t>(map)), "r"(shared_address(barrier)), "r"(at.c[0]), "r"(at.c[1]), "r"(at.c[2]),
      "r"(at.c[3]), "r"(at.c[4])
      : "memory");
}
// Prefetches one box into the second-level cache. Nothing is read beyond the map. cp.async.bulk.prefetch.tensor.5d.L2
__device__ inline void tma_prefetch(const CUtensorMap* map, const Coordinates& at) {
  asm volatile("cp.async.bulk.prefetch.tensor.5d.L2.global.tile [%0, {%1, %2, %3, %4, %5}];" ::"l"(
                   reinterpret_cast<std::uint64_t>(map)),
               "r"(at.c[0]), "r"(at.c[1]), "r"(at.c[2]), "r"(at.c[3]), "r"(at.c[4])
               : "memory");
}
// Copies shared memory to a box; rows out of range are not written. The threads that wrote the shared memory first call
// proxy_fence() and a barrier; then one thread calls this, store_commit, and store_wait before the memory is reused.
// cp.async.bulk.tensor.5d.global.shared::cta
__device__ inline void tma_store(const CUtensorMap* map, const Coordinates& at, const void* from) {
  asm volatile("cp.async.bulk.tensor.5d.global.shared::cta.tile.bulk_group [%0, {%2, %3, %4, %5, %6}], [%1];" ::"l"(
                   reinterpret_cast<std::uint64_t>(map)),
               "r"(shared_address(from)), "r"(at.c[0]), "r"(at.c[1]), "r"(at.c[2]), "r"(at.c[3]), "r"(at.c[4])
               : "memory");
}
// Copies contiguous bytes (a multiple of 16, both ends 16-byte aligned) to shared memory. cp.async.bulk
__device__ inline void bulk_load(void* to, const void* from, std::uint32_t bytes, std::uint64_t* barrier) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
                   shared_address(to)),
               "l"(reinterpret_cast<std::uint64_t>(from)), "r"(bytes), "r"(shared_address(barrier))
               : "memory");
}

// Copies contiguous bytes (a multiple of 16, both ends 16-byte aligned) from shared memory, or adds them as f32 to what
// is there. Belongs to a group, as tma_store. cp.async.bulk, cp.reduce.async.bulk
__device__ inline void bulk_store(void* to, const void* from, std::uint32_t bytes) {
  asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(reinterpret_cast<std::uint64_t>(to)),
               "r"(shared_address(from)), "r"(bytes)
               : "memory");
}
__device__ inline void bulk_add(float* to, const void* from, std::uint32_t bytes) {
  asm volatile("cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32 [%0], [%1], %2;" ::"l"(
                   reinterpret_cast<std::uint64_t>(to)),
               "r"(shared_address(from)), "r"(bytes)
               : "memory");
}

// cp.async.bulk.commit_group
__device__ inline void store_commit() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }
// Waits until the shared memory of all but the last `Pending` groups has been read. cp.async.bulk.wait_group.read
template <int Pending>
__device__ inline void store_wait() {
  asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(Pending) : "memory");
}
// Waits until all groups are complete: what they wrote is visible to this thread. cp.async.bulk.wait_group
__device__ inline void store_complete() { asm volatile("cp.async.bulk.wait_group 0;" ::: "memory"); }
// store_wait for all groups, and not before `value` is known: without this dependency ptxas moves work that does not
// touch memory behind the wait, where it hides no latency.
__device__ inline void store_wait_after(std::uint32_t value) {
  asm volatile(
      "{\n"
      ".reg .pred zero;\n"
      "setp.eq.u32 zero, %0, 0;\n"
      "@zero cp.async.bulk.wait_group 0;\n"
      "@!zero cp.async.bulk.wait_group.read 0;\n"
      "}\n" ::"r"(value)
      : "memory");
}
// Makes this thread's ordinary writes to shared memory visible to TMA and wgmma. fence.proxy.async
__device__ inline void proxy_fence() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }
// Orders this thread's ordinary accesses of global memory, such as waits for other blocks, with TMA's.
// fence.proxy.async.global
__device__ inline void proxy_fence_global() { asm volatile("fence.proxy.async.global;" ::: "memory"); }

}  // namespace longstride::kernels::cuda
