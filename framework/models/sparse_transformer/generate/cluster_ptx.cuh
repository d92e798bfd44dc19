// Hopper's instructions for blocks of one cluster, one small function each: stores into another block's shared memory
// that count towards a barrier there, copies that count towards one of ours, and waiting. PTX ISA 8.1, sm_90.
#pragma once
#include "kernels/attention/sm90/ptx.cuh"

namespace longstride::generation {

using namespace kernels;
using namespace kernels::cuda;

using sm90::barrier_arrive_expect;
using sm90::barrier_init;
using sm90::barrier_init_fence;
using sm90::bulk_load;
using sm90::named_barrier_sync;
using sm90::shared_address;

// The block's shared memory. By name, not by a pointer that is handed on: so the compiler knows what it is.
__device__ __forceinline__ char* block_memory() {
  extern __shared__ __align__(128) char shared[];
  return shared;
}

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

// As sm90::barrier_wait. What other blocks sent is in this block's shared memory before the barrier counts it, so that
// the order within the block suffices; that of the cluster would empty the first-level cache at every wait. Seconds of
// waiting mean that something is broken: a trap is better than for ever.
__device__ inline void await(std::uint64_t* barrier, std::uint32_t parity) {
  if (barrier_passed(barrier, parity)) return;
  const long long begin = clock64();
  while (!barrier_passed(barrier, parity))
    if (clock64() - begin > (1ll << 33)) __trap();
}

// A load that is not put off until its value is wanted.
__device__ inline float load_now(const void* from) {
  float x;
  asm volatile("ld.global.nc.f32 %0, [%1];" : "=f"(x) : "l"(from));
  return x;
}

// 16 bytes from global memory, around the first-level cache.
__device__ inline void copy_pack(std::uint32_t to, const void* from) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(from) : "memory");
}
// This thread arrives at `barrier` when all its copies so far are there.
__device__ inline void copies_arrive(std::uint64_t* barrier) {
  asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(shared_address(barrier)) : "memory");
}

// d += one block of a tile (product.cuh), 8 rows by 32 columns, times up to 4 vectors, by one instruction. Of the
// operand of 16 rows the upper 8 are this lane's words x and z, the lower 8 its words y and w: the same rows, other
// columns. So the other operand has each vector twice, and what a vector's product with a row is, is found in two
// halves: d[0] + d[3] is that of row lane / 4 and vector lane % 4. `pair`: words x and z of vector lane / 8, in odd
// groups of 4 lanes y and w.
template <class T>
__device__ inline void multiply_block(float (&d)[4], const uint4& w, const uint2& pair) {
  if constexpr (DtypeOf<T>::value == Dtype::bf16)
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(w.x), "r"(w.y), "r"(w.z), "r"(w.w), "r"(pair.x), "r"(pair.y));
  else
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(w.x), "r"(w.y), "r"(w.z), "r"(w.w), "r"(pair.x), "r"(pair.y));
}

}  // namespace longstride::generation
