// How a reduction over rows (a parameter's gradient) is split. The chunk size depends only on the number of rows; each
// chunk is summed into its own row of a workspace, and these rows are added in order. So the result does not depend on
// the number of threads, and rounding errors grow with the chunk size rather than with the number of rows.
#pragma once
#include <algorithm>
#include <cstdint>

#include "kernels/base/op.h"

namespace longstride::kernels {

struct RowChunks {
  std::int64_t rows;    // in a chunk; the last may have fewer
  std::int64_t chunks;  // rows of the workspace
};

constexpr RowChunks row_chunks(std::int64_t rows, std::int64_t most, std::int64_t smallest) {
  const std::int64_t per_chunk = std::max(smallest, (rows + most - 1) / most);
  return {per_chunk, (rows + per_chunk - 1) / per_chunk};
}

constexpr RowChunks row_chunks(std::int64_t rows) {
  constexpr std::int64_t most = 64;      // threads that can share the work, and rows of workspace
  constexpr std::int64_t smallest = 64;  // smaller chunks cost more to add up than they save
  return row_chunks(rows, most, smallest);
}

namespace cuda {

// The same on a GPU, with one chunk per block. Independent of the GPU, so that memory can be planned without one: 528
// chunks are four per multiprocessor of an H200.
constexpr RowChunks row_chunks(std::int64_t rows) { return kernels::row_chunks(rows, 528, 32); }

}  // namespace cuda

constexpr RowChunks row_chunks(Device device, std::int64_t rows) {
  return device == Device::cpu ? row_chunks(rows) : cuda::row_chunks(rows);
}

}  // namespace longstride::kernels
