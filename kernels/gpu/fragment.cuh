// Fragments: a warp's share of a matrix in registers, as the tensor cores hold it.
//
// An accumulator of mma.sync has 16 rows and of wgmma 16 per warp, in blocks of 8 columns. Lane l holds columns
// 8 j + 2 (l mod 4) + {0, 1} of row l / 4 (r = 0) and of row l / 4 + 8 (r = 1): 4 floats per block j.
// A left operand holds the same rows, columns 2 (l mod 4) + {0, 1} (+ 8): a[r + 2 (column / 8)], two 16-bit elements
// per register. So an accumulator's columns [16 k, 16 k + 16), packed pair by pair, are the next product's left
// operand: see pack_operand.
#pragma once
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>
#include <type_traits>

#include "kernels/gpu/lane.cuh"
#include "kernels/gpu/shared.cuh"

namespace longstride::kernels::cuda {

// The place of an accumulator's element in a thread's registers: column 8 j + 2 (l mod 4) + e of row l / 4 + 8 r.
__host__ __device__ constexpr int element_at(int j, int r, int e = 0) { return 4 * j + 2 * r + e; }

// Packs two f32 as 16-bit elements into one register, the first in the low half. cvt.rn.{bf16x2,f16x2}.f32
template <class T>
__device__ inline std::uint32_t pack(float low, float high) {
  std::uint32_t packed;
  if constexpr (std::is_same_v<T, __nv_bfloat16>)
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(high), "f"(low));
  else
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(high), "f"(low));
  return packed;
}
template <class T>
__device__ inline float2 unpack(std::uint32_t packed) {
  if constexpr (std::is_same_v<T, __nv_bfloat16>)
    return {__uint_as_float(packed << 16), __uint_as_float(packed & 0xFFFF0000u)};
  else
    return __half22float2(*reinterpret_cast<const __half2*>(&packed));
}

// Columns [16 k, 16 k + 16) of an accumulator as a product's left operand.
template <class T, int Count>
__device__ inline void pack_operand(std::uint32_t (&a)[4], const float (&d)[Count], int k) {
#pragma unroll
  for (int i = 0; i < 4; ++i) a[i] = pack<T>(d[8 * k + 2 * i], d[8 * k + 2 * i + 1]);
}

// Four matrices of 8 x 8 16-bit elements between registers and shared memory: lane l gives the address of row l mod 8
// of matrix l / 8, 16 bytes. ldmatrix
__device__ inline void load_matrices(std::uint32_t (&r)[4], const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(shared_address(row))
               : "memory");
}
// The same, each matrix transposed on the way.
__device__ inline void load_matrices_transposed(std::uint32_t (&r)[4], const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(shared_address(row))
               : "memory");
}
// The reverse, for Hopper. stmatrix
__device__ inline void store_matrices(void* row, std::uint32_t a, std::uint32_t b, std::uint32_t c, std::uint32_t d) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(shared_address(row)), "r"(a),
               "r"(b), "r"(c), "r"(d)
               : "memory");
}
__device__ inline void store_matrices_transposed(void* row, const std::uint32_t (&r)[4]) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(shared_address(row)),
               "r"(r[0]), "r"(r[1]), "r"(r[2]), "r"(r[3])
               : "memory");
}

// The transpose of such a matrix in registers: its row r is in the lanes of quad r, two elements each. movmatrix
__device__ inline std::uint32_t transposed(std::uint32_t matrix) {
  std::uint32_t result;
  asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(result) : "r"(matrix));
  return result;
}

// In each quad (four neighbouring lanes), lane q's v[i] becomes lane i's v[q].
__device__ inline void transpose_quad(std::uint32_t (&v)[4]) {
  const bool odd = threadIdx.x & 1, upper = threadIdx.x & 2;
#pragma unroll
  for (int i = 0; i < 4; i += 2) {
    const std::uint32_t received = __shfl_xor_sync(~0u, odd ? v[i] : v[i + 1], 1);
    v[i] = odd ? received : v[i];
    v[i + 1] = odd ? v[i + 1] : received;
  }
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const std::uint32_t received = __shfl_xor_sync(~0u, upper ? v[i] : v[i + 2], 2);
    v[i] = upper ? received : v[i];
    v[i + 2] = upper ? v[i + 2] : received;
  }
}

}  // namespace longstride::kernels::cuda
