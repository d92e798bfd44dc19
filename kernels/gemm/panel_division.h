// Which products kernels by panels (panel.cuh) can take, how their blocks divide them, and their launch. Host code.
#pragma once
#include <algorithm>
#include <cstdint>

#include "kernels/base/cuda_launch.cuh"
#include "kernels/base/gpu_kind.h"
#include "kernels/gemm/gemm.h"
#include "kernels/gemm/panel.cuh"
#include "kernels/gpu/tensor_map.h"

namespace longstride::kernels::cuda::panels {

inline constexpr std::int64_t most_depth = 8 * half;              // deepest panel of b that fits into shared memory
inline constexpr std::int64_t most_rows = std::int64_t{1} << 30;  // coordinates of TMA have 32 bits

// True if TMA can copy boxes of a row-major matrix.
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
  // True if every warpgroup has tiles enough to be worth the panel's load.
  bool fills_warpgroups() const { return tiles >= 2 * warpgroups * groups; }
};

// True if the columns are whole panels, of a depth that fits.
inline bool are_panels(std::int64_t rows, std::int64_t columns, std::int64_t depth) {
  return columns > 0 && columns % panel_columns == 0 && depth % half == 0 && depth <= most_depth && rows < most_rows;
}

inline Division division_of(const GemmArgs& args) { return {args.c.size(0), args.c.size(1), args.a.size(1)}; }

// True if a product of matrices is one of 16-bit types in whole panels, which this GPU's blocks can divide. `b` is as
// it is stored, row by row.
inline bool are_panels(const GemmArgs& args, const Tensor& b) {
  if (args.a.dtype() != args.c.dtype() || args.c.dtype() == Dtype::f32) return false;
  if (!are_panels(args.c.size(0), args.c.size(1), args.a.size(1))) return false;
  if (!is_mappable(args.a) || !is_mappable(b) || !is_mappable(args.c)) return false;
  return is_hopper() && division_of(args).fills_warpgroups();
}

inline PanelProduct panel_product(const GemmArgs& args, const Tensor& b) {
  const Division division = division_of(args);
  return {.a = matrix_map(args.a, tile_rows),
          .b = matrix_map(b, half),
          .c = matrix_map(args.c, box_rows),
          .tiles = static_cast<std::int32_t>(division.tiles),
          .steps = static_cast<std::int32_t>(division.steps),
          .panels = static_cast<std::int32_t>(division.panels),
          .groups = static_cast<std::int32_t>(division.groups),
          .bias = args.bias.given() ? static_cast<const std::uint16_t*>(args.bias.data()) : nullptr};
}

// Launches a kernel whose blocks are run_block<K>.
template <class K, class Problem>
void run_panels(const char* name, void (*kernel)(Problem), const Problem& p, const Launch& launch) {
  constexpr std::size_t shared = K::P::L::template bytes<typename K::Control>;
  allow_shared(kernel, shared);
  run(name, kernel, {static_cast<unsigned>(p.panels * p.groups), threads, shared}, launch, p);
}

}  // namespace longstride::kernels::cuda::panels
