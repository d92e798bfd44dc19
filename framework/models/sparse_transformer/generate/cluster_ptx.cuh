// Hopper's instructions for the blocks of a cluster, one small function each: stores into another block's shared memory
// that complete on a barrier there, copies that complete on a local barrier, and waiting. PTX ISA 8.1, sm_90.
#pragma once
#include "kernels/attention/sm90/ptx.cuh"

namespace longstride::generation {

using kernels::cuda::sm90::barrier_arrive_expect;
using kernels::cuda::sm90::barrier_init;
using kernels::cuda::sm90::barrier_init_fence;
using kernels::cuda::sm90::bulk_load;
using kernels::cuda::sm90::named_barrier_sync;
using kernels::cuda::sm90::shared_address;

// The block's shared memory. A pointer that is passed around would hide the address space from the compiler.
__device__ __forceinline__ char* block_memory() {
  extern __shared__ __align__(128) char shared[];
  return shared;
}

__device__ inline int cluster_rank() {
  std::uint32_t rank;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return static_cast<int>(rank);
}

// Called by all threads of all blocks of the cluster; writes before it are visible after it.
__device__ inline void cluster_sync() {
  asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::: "memory");
}

// The address in block `rank` that corresponds to `address` in this block's shared memory.
__device__ inline std::uint32_t address_in(std::uint32_t address, int rank) {
  std::uint32_t there;
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(address), "r"(rank));
  return there;
}

// Stores 16 bytes in another block (or this one) and completes them on a barrier of that block. Both addresses come
// from address_in.
__device__ inline void send(std::uint32_t to, const uint4& x, std::uint32_t barrier) {
  asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.b32 [%0], {%1, %2, %3, %4}, [%5];" ::"r"(to),
               "r"(x.x), "r"(x.y), "r"(x.z), "r"(x.w), "r"(barrier)
               : "memory");
}

__device__ inline void barrier_arrive(std::uint64_t* barrier, std::uint32_t times) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(barrier)), "r"(times) : "memory");
}

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

// As sm90::barrier_wait. Data from other blocks is in this block's shared memory before the barrier counts it, so
// acquire semantics at block scope suffice; cluster scope would invalidate the first-level cache at every wait. Seconds
// of waiting mean a bug: trap instead of hanging.
__device__ inline void await(std::uint64_t* barrier, std::uint32_t parity) {
  if (barrier_passed(barrier, parity)) return;
  const long long begin = clock64();
  while (!barrier_passed(barrier, parity))
    if (clock64() - begin > (1ll << 33)) __trap();
}

// A load that the compiler cannot defer to the first use of its value.
__device__ inline float load_now(const void* from) {
  float x;
  asm volatile("ld.global.nc.f32 %0, [%1];" : "=f"(x) : "l"(from));
  return x;
}

// Copies 16 bytes from global memory, bypassing the first-level cache.
__device__ inline void copy_pack(std::uint32_t to, const void* from) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(from) : "memory");
}
// This thread arrives at `barrier` once all its copies so far are complete.
__device__ inline void copies_arrive(std::uint64_t* barrier) {
  asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(shared_address(barrier)) : "memory");
}

// d += one block of a tile (product.cuh), 8 rows by 32 columns, times up to 4 vectors, by one instruction. The left
// operand has 16 rows: the upper 8 are this lane's words x and z, the lower 8 its words y and w, which are the same
// rows at other columns. The right operand therefore holds each vector twice, and a product comes in two halves: that
// of row lane / 4 and vector lane % 4 is d[0] + d[3]. `pair`: words x and z of vector lane / 8; y and w in odd groups
// of 4 lanes.
template <class T>
__device__ inline void multiply_block(float (&d)[4], const uint4& w, const uint2& pair) {
  if constexpr (kernels::DtypeOf<T>::value == kernels::Dtype::bf16)
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(w.x), "r"(w.y), "r"(w.z), "r"(w.w), "r"(pair.x), "r"(pair.y));
  else
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(w.x), "r"(w.y), "r"(w.z), "r"(w.w), "r"(pair.x), "r"(pair.y));
}

}  // namespace longstride::generation
