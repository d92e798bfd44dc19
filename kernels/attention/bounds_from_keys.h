// Bounds of queries, seen from the keys: the kernels of their gradients walk the queries of a key.
#pragma once
#include <cstddef>

#include "kernels/attention/pattern/row_bounds.h"
#include "kernels/base/op.h"

namespace longstride::kernels::cuda {

// rows: sequences times heads with bounds of their own.
constexpr std::size_t bounds_from_keys_bytes(std::int64_t rows, std::int64_t n_k) {
  return 2 * sizeof(std::int32_t) * static_cast<std::size_t>(rows * n_k);
}

// Key j is within the bounds of the queries from the first whose end is above j to the first whose begin is: two
// bisections a key, since neither decreases. memory: of that many bytes.
BoundsView bounds_from_keys(const RowBounds& bounds, std::int64_t n_k, void* memory, const Launch&);

}  // namespace longstride::kernels::cuda
