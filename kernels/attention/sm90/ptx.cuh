// Hopper's own instructions, one small function each: mbarriers, bulk tensor copies (TMA), warp-specialised registers.
// The matrix products are in wgmma.cuh. PTX ISA 8.0, sm_90a.
#pragma once
#include <cuda.h>
#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/base/approximate.cuh"

namespace longstride::kernels::cuda::sm90 {

__device__ inline std::uint32_t shared_address(const void* p) {
  return static_cast<std::uint32_t>(__cvta_generic_to_shared(p));
}

// ---- mbarriers: 8 bytes of shared memory, 8-byte aligned ----

__device__ inline void barrier_init(std::uint64_t* barrier, int arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(barrier)), "r"(arrivals) : "memory");
}
// Call after the inits, then __syncthreads, before any other thread or TMA uses the barriers.
__device__ inline void barrier_init_fence() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }

__device__ inline void barrier_arrive(std::uint64_t* barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(barrier)) : "memory");
}
// Arrives once and announces `bytes` that bulk copies will write.
__device__ inline void barrier_arrive_expect(std::uint64_t* barrier, std::uint32_t bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(barrier)), "r"(bytes)
               : "memory");
}
// Waits until the phase of this parity is complete. A fresh barrier is in phase 0: wait(0) waits for the first
// completion, wait(1) returns at once.
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

// ---- Synchronisation of some of a block's threads; 0 is __syncthreads ----

__device__ inline void named_barrier_sync(int id, int threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}
__device__ inline void named_barrier_arrive(int id, int threads) {
  asm volatile("bar.arrive %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

// ---- Registers of a warpgroup: called by all its threads; Count is a multiple of 8 in [24, 256] ----

template <int Count>
__device__ inline void registers_take() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(Count));
}
template <int Count>
__device__ inline void registers_give() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(Count));
}

// ---- TMA ----

__device__ inline void tensor_map_prefetch(const CUtensorMap* map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(reinterpret_cast<std::uint64_t>(map)) : "memory");
}

// Copies one box of a 5-D map to shared memory; its bytes complete on `barrier`. Called by one thread.
struct Coordinates {
  std::int32_t c[5];
};
__device__ inline void tma_load(void* to, const CUtensorMap* map, const Coordinates& at, std::uint64_t* barrier) {
  asm volatile(
      "cp.async.bulk.tensor.5d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %5, %6, "
      "%7}], [%2];" ::"r"(shared_address(to)),
      "l"(reinterpret_cast<std::uint64_t>(map)), "r"(shared_address(barrier)), "r"(at.c[0]), "r"(at.c[1]), "r"(at.c[2]),
      "r"(at.c[3]), "r"(at.c[4])
      : "memory");
}
// Prefetches one box of a 5-D map into the second-level cache. Nothing is read beyond the map.
__device__ inline void tma_prefetch(const CUtensorMap* map, const Coordinates& at) {
  asm volatile("cp.async.bulk.prefetch.tensor.5d.L2.global.tile [%0, {%1, %2, %3, %4, %5}];" ::"l"(
                   reinterpret_cast<std::uint64_t>(map)),
               "r"(at.c[0]), "r"(at.c[1]), "r"(at.c[2]), "r"(at.c[3]), "r"(at.c[4])
               : "memory");
}
// Copies shared memory to a box of a 5-D map; rows out of range are not written. The threads that wrote the shared
// memory first call proxy_fence() and a barrier; then one thread calls this, store_commit, and store_wait before the
// memory is reused.
__device__ inline void tma_store(const CUtensorMap* map, const Coordinates& at, const void* from) {
  asm volatile("cp.async.bulk.tensor.5d.global.shared::cta.tile.bulk_group [%0, {%2, %3, %4, %5, %6}], [%1];" ::"l"(
                   reinterpret_cast<std::uint64_t>(map)),
               "r"(shared_address(from)), "r"(at.c[0]), "r"(at.c[1]), "r"(at.c[2]), "r"(at.c[3]), "r"(at.c[4])
               : "memory");
}
// Copies contiguous bytes (a multiple of 16, both ends 16-byte aligned) to shared memory.
__device__ inline void bulk_load(void* to, const void* from, std::uint32_t bytes, std::uint64_t* barrier) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
                   shared_address(to)),
               "l"(reinterpret_cast<std::uint64_t>(from)), "r"(bytes), "r"(shared_address(barrier))
               : "memory");
}
__device__ inline void store_commit() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }
// Waits until the shared memory of all but the last `Pending` groups has been read.
template <int Pending>
__device__ inline void store_wait() {
  asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(Pending) : "memory");
}
// The same for all groups, and not before `value` is known: without this dependency ptxas moves work that does not
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
// Makes this thread's ordinary writes to shared memory visible to TMA and wgmma.
__device__ inline void proxy_fence() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

// ---- Matrices of 8 x 8 16-bit elements between registers and shared memory; `row` is this lane's 16-byte row ----

__device__ inline void matrix_load_4(std::uint32_t (&r)[4], const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(shared_address(row))
               : "memory");
}
__device__ inline void matrix_store_4(void* row, std::uint32_t a, std::uint32_t b, std::uint32_t c, std::uint32_t d) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(shared_address(row)), "r"(a),
               "r"(b), "r"(c), "r"(d)
               : "memory");
}
// The same, each matrix transposed on the way.
__device__ inline void matrix_store_4_transposed(void* row, const std::uint32_t (&r)[4]) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(shared_address(row)),
               "r"(r[0]), "r"(r[1]), "r"(r[2]), "r"(r[3])
               : "memory");
}

// ---- Registers that a warp shares ----

// A value that is equal in all lanes of a warp, in a form that the compiler recognises: what is computed from it
// (tiles, descriptors, branches) then uses uniform registers, which wgmma and TMA need for their operands.
__device__ inline std::int32_t uniform(std::int32_t x) { return __shfl_sync(~0u, x, 0); }

}  // namespace longstride::kernels::cuda::sm90
