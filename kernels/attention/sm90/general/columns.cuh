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

// Those that are holes (geometry.h) in a tile of a row set whose runs have `run` entries, a power of two, with `width`
// keys. `begin`: the tile's first entry, a multiple of the run or within one. `column`: the thread's first.
__device__ inline std::uint32_t hole_columns(std::int32_t run, std::int32_t width, std::int32_t begin,
                                             std::int32_t column) {
  if (run < 8) {
    const std::int32_t in_run = column % run;
    return 0x55555555u * ((in_run >= width ? 1u : 0u) + (in_run + 1 >= width ? 2u : 0u));
  }
  // The first run, then twice as many runs each time. Beyond a tile, `width` may lie before or behind it.
  std::uint32_t holes = ~columns_below(width - begin % run - column);
  if (run < 128) holes &= (1u << run / 4) - 1;
  for (std::int32_t bits = run / 4; bits < 32; bits *= 2) holes |= holes << bits;
  return holes;
}

}  // namespace longstride::kernels::cuda::sm90
