// Sets of the columns that a thread holds in a row of an accumulator (fragment.cuh), as bits: bit i is column
// 8 (i / 2) + i mod 2, counted from the thread's first, 2 (lane mod 4).
#pragma once
#include <cstdint>

namespace longstride::kernels::cuda::sm90 {

// Those below `limit`, counted from the thread's first column.
__device__ inline std::uint32_t columns_below(std::int32_t limit) {
  const std::int32_t count = min(max(limit, 0) / 8 * 2 + min(max(limit, 0) % 8, 2), 32);
  return count == 32 ? ~0u : (1u << count) - 1;
}

}  // namespace longstride::kernels::cuda::sm90
