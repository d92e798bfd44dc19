// Hopper's instructions for blocks of one cluster, one small function each: stores into another block's shared memory
// that count towards a barrier there, copies that count towards one of ours, and waiting. PTX ISA 8.1, sm_90.
#pragma once
#include "kernels/attention/sm90/ptx.cuh"

namespace longstride::kernels::cuda::generation {

using sm90::barrier_arrive;
using sm90::barrier_arrive_expect;
using sm90::barrier_init;
using sm90::barrier_init_fence;
using sm90::bulk_load;
using sm90::named_barrier_sync;
using sm90::shared_address;

__device__ inline int cluster_rank() {
  std::uint32_t rank;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return static_cast<int>(rank);
}

// All threads of all blocks of the cluster; what they wrote before is seen after.
__device__ inline void cluster_sync() {
  asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::: "memory");
}

// Where `address` of this block's shared memory lies in block `rank`.
__device__ inline std::uint32_t address_in(std::uint32_t address, int rank) {
  std::uint32_t there;
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(address), "r"(rank));
  return there;
}

// 16 bytes to another block (or this one), which count towards a barrier of that block. Both are from address_in.
__device__ inline void send(std::uint32_t to, const uint4& x, std::uint32_t barrier) {
  asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.b32 [%0], {%1, %2, %3, %4}, [%5];" ::"r"(to),
               "r"(x.x), "r"(x.y), "r"(x.z), "r"(x.w), "r"(barrier)
               : "memory");
}

__device__ inline bool barrier_passed(std::uint64_t* barrier, std::uint32_t parity) {
  std::uint32_t passed;
  asm volatile(
      "{\n"
      ".reg .pred done;\n"
      "mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 done, [%1], %2;\n"
      "selp.u32 %0, 1, 0, done;\n"
      "}\n"
      : "=r"(passed)
      : "r"(shared_address(barrier)), "r"(parity)
      : "memory");
  return passed != 0;
}

// As sm90::barrier_wait, and for what other blocks sent. Seconds of waiting mean that something is broken: a trap is
// better than for ever.
__device__ inline void await(std::uint64_t* barrier, std::uint32_t parity) {
  if (barrier_passed(barrier, parity)) return;
  const long long begin = clock64();
  while (!barrier_passed(barrier, parity))
    if (clock64() - begin > (1ll << 33)) __trap();
}

// 16 bytes from global memory, around the first-level cache.
__device__ inline void copy_pack(std::uint32_t to, const void* from) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(from) : "memory");
}
// This thread arrives at `barrier` when all its copies so far are there.
__device__ inline void copies_arrive(std::uint64_t* barrier) {
  asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(shared_address(barrier)) : "memory");
}

__device__ inline void prefetch_bulk(const void* from, std::uint32_t bytes) {
  asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(from), "r"(bytes) : "memory");
}

// d = a b over the 32 columns of a block (product.cuh), a (16, 32) of which the lower 8 rows are zero, b (8, 32).
template <class T>
__device__ inline void multiply_block(float (&d)[4], const uint4& a, const uint4& b) {
  if constexpr (DtypeOf<T>::value == Dtype::bf16)
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%12,%5,%12}, {%8,%9}, "
        "{%13,%13,%13,%13};\n"
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%6,%12,%7,%12}, {%10,%11}, "
        "{%0,%1,%2,%3};"
        : "=&f"(d[0]), "=&f"(d[1]), "=&f"(d[2]), "=&f"(d[3])
        : "r"(a.x), "r"(a.y), "r"(a.z), "r"(a.w), "r"(b.x), "r"(b.y), "r"(b.z), "r"(b.w), "r"(0), "f"(0.0f));
  else
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%12,%5,%12}, {%8,%9}, "
        "{%13,%13,%13,%13};\n"
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%6,%12,%7,%12}, {%10,%11}, {%0,%1,%2,%3};"
        : "=&f"(d[0]), "=&f"(d[1]), "=&f"(d[2]), "=&f"(d[3])
        : "r"(a.x), "r"(a.y), "r"(a.z), "r"(a.w), "r"(b.x), "r"(b.y), "r"(b.z), "r"(b.w), "r"(0), "f"(0.0f));
}

}  // namespace longstride::kernels::cuda::generation
