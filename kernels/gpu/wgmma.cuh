// Warpgroup matrix products of Hopper (wgmma): d (64 x N, f32, registers) += a (64 x 16) b (16 x N), a from shared
// memory or registers, b from shared memory, 16-bit inputs. wgmma.mma_async, PTX ISA 8.0, sm_90a.
//
// d and a in registers are fragments (fragment.cuh): warp w of the warpgroup has the rows from 16 w on.
//
// Shared tiles have rows of 32, 64 or 128 bytes (16, 32 or 64 elements) with the swizzle of that size, as TMA writes
// them, at addresses that are a multiple of 8 rows. A head of 128 is two tiles of 64 columns one after the other.
//   K-major: the product runs along the row (q k^T): a step of 16 advances by 32 bytes.
//   MN-major: the product runs along the tile's rows (p v): a step of 16 advances by 16 rows.
#pragma once
#include <cuda_bf16.h>

#include <cstdint>
#include <type_traits>

#include "kernels/gpu/fragment.cuh"
#include "kernels/gpu/shared.cuh"

namespace longstride::kernels::cuda {

// Order: registers written by this thread, then wgmma_fence, the products, wgmma_commit, wgmma_wait<0>, registers read.
__device__ inline void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ inline void wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int Pending>
__device__ inline void wgmma_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(Pending) : "memory");
}
// Keeps the compiler from moving or copying accumulators across an asynchronous product.
template <int Count>
__device__ inline void wgmma_hold(float (&d)[Count]) {
#pragma unroll
  for (int i = 0; i < Count; ++i) asm volatile("" : "+f"(d[i])::"memory");
}

// The descriptor of a tile in shared memory. RowBytes 32, 64 or 128; `tile_bytes` is the distance to the next tile of
// columns (MN-major only, when N is more than one tile's columns).
template <int RowBytes>
__device__ inline std::uint64_t descriptor(const void* tile, std::uint32_t tile_bytes = 0) {
  static_assert(RowBytes == 32 || RowBytes == 64 || RowBytes == 128);
  constexpr std::uint64_t swizzle = RowBytes == 128 ? 1 : RowBytes == 64 ? 2 : 3;
  constexpr std::uint64_t eight_rows = RowBytes * 8 / 16;
  const std::uint64_t address = (shared_address(tile) & 0x3FFFF) >> 4;
  return address | static_cast<std::uint64_t>(tile_bytes >> 4) << 16 | eight_rows << 32 | swizzle << 62;
}
// The descriptor advanced by `bytes`. The address never carries into the fields above it.
__device__ inline std::uint64_t advanced(std::uint64_t descriptor, std::uint32_t bytes) {
  return (descriptor & 0xFFFFFFFF00000000) | (static_cast<std::uint32_t>(descriptor) + (bytes >> 4));
}

// A left operand in other registers: those of a product may be neither read nor written until it has ended. mov
__device__ inline void copy_operand(std::uint32_t (&to)[4][4], const std::uint32_t (&from)[4][4]) {
#pragma unroll
  for (int i = 0; i < 4; ++i)
#pragma unroll
    for (int j = 0; j < 4; ++j) asm volatile("mov.b32 %0, %1;" : "=r"(to[i][j]) : "r"(from[i][j]));
}

// wgmma<T, N, TransposedB>(d, a, b, accumulate): d = a b, or d += a b. a is a K-major descriptor or four registers; b
// is a K-major descriptor, or MN-major when TransposedB.
#define LONGSTRIDE_D8(i)                                                                                      \
  "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), "+f"(d[i + 4]), "+f"(d[i + 5]), "+f"(d[i + 6]), \
      "+f"(d[i + 7])
#define LONGSTRIDE_D16(i) LONGSTRIDE_D8(i), LONGSTRIDE_D8(i + 8)
#define LONGSTRIDE_OPERANDS_16 LONGSTRIDE_D16(0)
#define LONGSTRIDE_TEXT_16 "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15"
#define LONGSTRIDE_OPERANDS_32 LONGSTRIDE_D16(0), LONGSTRIDE_D16(16)
#define LONGSTRIDE_TEXT_32                                                 \
  "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, " \
  "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define LONGSTRIDE_OPERANDS_64 LONGSTRIDE_D16(0), LONGSTRIDE_D16(16), LONGSTRIDE_D16(32), LONGSTRIDE_D16(48)
#define LONGSTRIDE_TEXT_64                                                           \
  "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "           \
  "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, " \
  "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, " \
  "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"

#define LONGSTRIDE_WGMMA_32(type)                                                                                      \
  if constexpr (!registers)                                                                                            \
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %18, 0;\nwgmma.mma_async.sync.aligned.m64n32k16.f32." type "." type \
                 " {" LONGSTRIDE_TEXT_16 "}, %16, %17, p, 1, 1, 0, %19;\n}\n"                                          \
                 : LONGSTRIDE_OPERANDS_16                                                                              \
                 : "l"(a), "l"(b), "r"(static_cast<int>(accumulate)), "n"(TransposedB ? 1 : 0));                       \
  else                                                                                                                 \
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %21, 0;\nwgmma.mma_async.sync.aligned.m64n32k16.f32." type "." type \
                 " {" LONGSTRIDE_TEXT_16 "}, {%16, %17, %18, %19}, %20, p, 1, 1, %22;\n}\n"                            \
                 : LONGSTRIDE_OPERANDS_16                                                                              \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(static_cast<int>(accumulate)),              \
                   "n"(TransposedB ? 1 : 0))

#define LONGSTRIDE_WGMMA_64(type)                                                                                      \
  if constexpr (!registers)                                                                                            \
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %34, 0;\nwgmma.mma_async.sync.aligned.m64n64k16.f32." type "." type \
                 " {" LONGSTRIDE_TEXT_32 "}, %32, %33, p, 1, 1, 0, %35;\n}\n"                                          \
                 : LONGSTRIDE_OPERANDS_32                                                                              \
                 : "l"(a), "l"(b), "r"(static_cast<int>(accumulate)), "n"(TransposedB ? 1 : 0));                       \
  else                                                                                                                 \
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %37, 0;\nwgmma.mma_async.sync.aligned.m64n64k16.f32." type "." type \
                 " {" LONGSTRIDE_TEXT_32 "}, {%32, %33, %34, %35}, %36, p, 1, 1, %38;\n}\n"                            \
                 : LONGSTRIDE_OPERANDS_32                                                                              \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(static_cast<int>(accumulate)),              \
                   "n"(TransposedB ? 1 : 0))

#define LONGSTRIDE_WGMMA_128(type)                                                                             \
  if constexpr (!registers)                                                                                    \
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %66, 0;\nwgmma.mma_async.sync.aligned.m64n128k16.f32." type \
                 "." type " {" LONGSTRIDE_TEXT_64 "}, %64, %65, p, 1, 1, 0, %67;\n}\n"                         \
                 : LONGSTRIDE_OPERANDS_64                                                                      \
                 : "l"(a), "l"(b), "r"(static_cast<int>(accumulate)), "n"(TransposedB ? 1 : 0));               \
  else                                                                                                         \
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %69, 0;\nwgmma.mma_async.sync.aligned.m64n128k16.f32." type \
                 "." type " {" LONGSTRIDE_TEXT_64 "}, {%64, %65, %66, %67}, %68, p, 1, 1, %70;\n}\n"           \
                 : LONGSTRIDE_OPERANDS_64                                                                      \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(static_cast<int>(accumulate)),      \
                   "n"(TransposedB ? 1 : 0))

template <class T, int N, bool TransposedB, class A>
__device__ inline void wgmma(float (&d)[N / 2], const A& a, std::uint64_t b, bool accumulate) {
  static_assert(N == 32 || N == 64 || N == 128);
  constexpr bool registers = !std::is_same_v<A, std::uint64_t>;
  constexpr bool bf16 = std::is_same_v<T, __nv_bfloat16>;
  if constexpr (N == 32 && bf16) {
    LONGSTRIDE_WGMMA_32("bf16");
  } else if constexpr (N == 32) {
    LONGSTRIDE_WGMMA_32("f16");
  } else if constexpr (N == 64 && bf16) {
    LONGSTRIDE_WGMMA_64("bf16");
  } else if constexpr (N == 64) {
    LONGSTRIDE_WGMMA_64("f16");
  } else if constexpr (N == 128 && bf16) {
    LONGSTRIDE_WGMMA_128("bf16");
  } else if constexpr (N == 128) {
    LONGSTRIDE_WGMMA_128("f16");
  }
}

// d (64 x 2 Half) = a^T b, or d += a^T b: both from shared memory, MN-major, so the product runs along the rows of both
// tiles. A b of 128 columns is two tiles of 64.
#define LONGSTRIDE_WGMMA_ROWS(type, n, half, from_a, from_b, flag)                                                 \
  asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, " flag ", 0;\nwgmma.mma_async.sync.aligned.m64" n "k16.f32." type \
               "." type " {" LONGSTRIDE_TEXT_##half "}, " from_a ", " from_b ", p, 1, 1, 1, 1;\n}\n"               \
               : LONGSTRIDE_OPERANDS_##half                                                                        \
               : "l"(a), "l"(b), "r"(static_cast<int>(accumulate)))
#define LONGSTRIDE_WGMMA_ROWS_OF(type)                           \
  if constexpr (Half == 16)                                      \
    LONGSTRIDE_WGMMA_ROWS(type, "n32", 16, "%16", "%17", "%18"); \
  else if constexpr (Half == 32)                                 \
    LONGSTRIDE_WGMMA_ROWS(type, "n64", 32, "%32", "%33", "%34"); \
  else                                                           \
    LONGSTRIDE_WGMMA_ROWS(type, "n128", 64, "%64", "%65", "%66")
template <class T, int Half>
__device__ inline void wgmma_rows(float (&d)[Half], std::uint64_t a, std::uint64_t b, bool accumulate) {
  static_assert(Half == 16 || Half == 32 || Half == 64);
  if constexpr (std::is_same_v<T, __nv_bfloat16>) {
    LONGSTRIDE_WGMMA_ROWS_OF("bf16");
  } else {
    LONGSTRIDE_WGMMA_ROWS_OF("f16");
  }
}
#undef LONGSTRIDE_WGMMA_ROWS_OF
#undef LONGSTRIDE_WGMMA_ROWS

#undef LONGSTRIDE_WGMMA_32
#undef LONGSTRIDE_TEXT_16
#undef LONGSTRIDE_OPERANDS_16
#undef LONGSTRIDE_WGMMA_64
#undef LONGSTRIDE_TEXT_32
#undef LONGSTRIDE_OPERANDS_32
#undef LONGSTRIDE_WGMMA_128
#undef LONGSTRIDE_TEXT_64
#undef LONGSTRIDE_OPERANDS_64
#undef LONGSTRIDE_D16
#undef LONGSTRIDE_D8

// s = a b^T, or += a b^T, both tiles of 64 rows in shared memory, and a commit.
template <class T, int Size>
__device__ __forceinline__ void multiply_tiles(float (&s)[32], const char* a, const char* b, bool adds = false) {
  constexpr int row_bytes = Size < 64 ? Size * 2 : 128;
  const std::uint64_t left = descriptor<row_bytes>(a), right = descriptor<row_bytes>(b);
#pragma unroll
  for (int i = 0; i < Size / 16; ++i) {
    const int within = i / 4 * 64 * row_bytes + i % 4 * 32;
    wgmma<T, 64, false>(s, advanced(left, within), advanced(right, within), adds || i > 0);
  }
  wgmma_commit();
}

}  // namespace longstride::kernels::cuda
