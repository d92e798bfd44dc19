// Rows that a warpgroup of a backward kernel owns, as the left operand of S or dP: 64 x Size, in registers or in shared
// memory.
#pragma once
#include <algorithm>
#include <cstdint>

#include "kernels/gpu/fragment.cuh"
#include "kernels/gpu/wgmma.cuh"

namespace longstride::kernels::cuda::sm90 {

template <class T, int Step, int Size, bool InRegisters>
struct OwnRows {
  static constexpr int row_bytes = std::min(Size, 64) * 2;
  std::uint32_t a[InRegisters ? Size / 16 : 1][4];
  std::uint64_t at;

  __device__ void load(const char* from) {
    at = descriptor<row_bytes>(from);
    if constexpr (InRegisters) {
      const int lane = threadIdx.x % 32, row = threadIdx.x % 128 / 32 * 16 + lane % 16;
#pragma unroll
      for (int i = 0; i < Size / 16; ++i) {
        const int within = row * row_bytes + (i % 4 * 2 + lane / 16) * 16;
        load_matrices(a[i], from + i / 4 * 64 * row_bytes + (within ^ (within >> 7) % (row_bytes / 16) * 16));
      }
    }
  }

  // s = own tile^T, for a tile of Step rows at b
  __device__ void multiply(float (&s)[Step / 2], std::uint64_t b) const {
#pragma unroll
    for (int i = 0; i < Size / 16; ++i) {
      const int within = i % 4 * 32;
      const std::uint64_t b_step = advanced(b, i / 4 * Step * row_bytes + within);
      if constexpr (InRegisters)
        wgmma<T, Step, false>(s, a[i], b_step, i > 0);
      else
        wgmma<T, Step, false>(s, advanced(at, i / 4 * 64 * row_bytes + within), b_step, i > 0);
    }
    wgmma_commit();
  }
};

}  // namespace longstride::kernels::cuda::sm90
