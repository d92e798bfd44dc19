// Which products kernels by panels (panel.cuh) can take, and how their blocks divide them. Host code.
#pragma once
#include <algorithm>
#include <cstdint>

#include "kernels/base/gpu_kind.h"
#include "kernels/base/tensor.h"
#include "kernels/gemm/panel.cuh"

namespace longstride::kernels::cuda::panels {

inline constexpr std::int64_t most_depth = 8 * half;              // of which a panel of b fits into shared memory
inline constexpr std::int64_t most_rows = std::int64_t{1} << 30;  // coordinates of TMA have 32 bits

// Whether TMA can copy boxes of a row-major matrix.
inline bool is_mappable(const Tensor& m) {
  return m.stride(1) == 1 && m.stride(0) % 8 == 0 && m.size(1) % half == 0 &&
         reinterpret_cast<std::uintptr_t>(m.data()) % 16 == 0;
}

// A product of (rows, depth) and (depth, columns): `panels` of columns times `groups` of rows are the blocks, and a
// block takes every groups-th tile of rows.
struct Division {
  std::int64_t panels, tiles, groups, steps;  // steps of 64 in depth

  Division(std::int64_t rows, std::int64_t columns, std::int64_t depth)
      : panels(columns / panel_columns),
        tiles((rows + tile_rows - 1) / tile_rows),
        groups(std::clamp<std::int64_t>(multiprocessors() / panels, 1, tiles)),
        steps(depth / half) {}
  // Whether every warpgroup has tiles enough to be worth the panel's load.
  bool fills_warpgroups() const { return tiles >= 2 * warpgroups * groups; }
};

// Whether the columns are whole panels, of a depth that fits.
inline bool are_panels(std::int64_t rows, std::int64_t columns, std::int64_t depth) {
  return columns > 0 && columns % panel_columns == 0 && depth % half == 0 && depth <= most_depth && rows < most_rows;
}

}  // namespace longstride::kernels::cuda::panels
