// A warp's matrix product: d (16 x 8, f32) += a (16 x 16) b (16 x 8), 16-bit inputs, all in registers (fragment.cuh),
// for compute capability 8.0 and later. b: lane l holds rows 2 (l mod 4) + {0, 1} of column l / 4 in b0, and the rows 8
// further in b1. mma.sync.aligned.m16n8k16
#pragma once
#include <cuda_bf16.h>

#include <cstdint>
#include <type_traits>

namespace longstride::kernels::cuda {

template <class T>
__device__ inline void multiply_add(float (&d)[4], std::uint32_t a0, std::uint32_t a1, std::uint32_t a2,
                                    std::uint32_t a3, std::uint32_t b0, std::uint32_t b1) {
  if constexpr (std::is_same_v<T, __nv_bfloat16>)
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
  else
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}
template <class T>
__device__ inline void multiply_add(float (&d)[4], const std::uint32_t (&a)[4], std::uint32_t b0, std::uint32_t b1) {
  multiply_add<T>(d, a[0], a[1], a[2], a[3], b0, b1);
}

}  // namespace longstride::kernels::cuda
