// How a block finds its share (read_rows.h): from the spans, which nothing else knows.
#pragma once
#include "kernels/gpu/lane.cuh"
#include "kernels/span_projection/read_rows.h"

namespace longstride::kernels::cuda {

// Into shared memory, by the first threads of a block; then a barrier.
__device__ inline void find_first_tiles(const ReadRows& rows, std::int32_t* first_tile) {
  if (this_thread() < rows.panels) first_tile[this_thread()] = rows.first_tile(this_thread());
}
__device__ inline PanelShares panel_shares(const ReadRows& rows, const std::int32_t* first_tile, std::int32_t blocks) {
  return {first_tile, rows.panels, rows.tiles_of_sequence(), blocks};
}
// Called by whole warps.
__device__ inline PanelShare share_of_block(const PanelShares& shares, std::int32_t block) {
  const PanelShare found = shares.of_block(block);
  return {uniform(found.panel), uniform(found.index), uniform(found.groups), uniform(found.first),
          uniform(found.tiles)};
}

}  // namespace longstride::kernels::cuda
