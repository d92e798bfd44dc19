// The order in which blocks take the tiles of rows that have lists. A list reads rows anywhere, and the second-level
// cache holds those of one head, so heads come one after the other. The first and the last tile of every head come
// before: rows that see or are seen by all are mostly there, and take the longest.
#pragma once
#include <cstdint>

#include "kernels/base/host_device.h"

namespace longstride::kernels::cuda::sm90 {

// The block's task, unit + units * tile: a unit is a head of a sequence and has `tiles` tiles of queries or keys.
LONGSTRIDE_HOST_DEVICE constexpr std::int32_t listed_task(std::int32_t block, std::int32_t units, std::int32_t tiles) {
  if (block < units) return block;
  block -= units;
  if (block < units) return block + units * (tiles - 1);
  block -= units;
  const std::int32_t between = tiles - 2;
  return block / between + units * (1 + block % between);
}

}  // namespace longstride::kernels::cuda::sm90
