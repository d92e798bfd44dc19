// The keys that a query may see at all, read from memory: they clamp every part of a plan. Documents that do not mix are
// bounds, and so are intervals that a layer computes (a dense part of both directions, clamped).
#pragma once
#include <cstdint>

#include "kernels/attention/pattern/plan.h"
#include "kernels/base/host_device.h"
#include "kernels/base/tensor.h"

namespace longstride::kernels {

// (batch, heads or 1, n_q) i32, contiguous: query row i sees key rows of [begin_i, end_i), none if it is empty. Neither
// may decrease along a row: tiles follow from the first and last of their queries.
struct RowBounds {
  Tensor begin = {}, end = {};

  bool given() const { return begin.given(); }
};

// The bounds of one sequence and head, as kernels read them; null where nothing is clamped.
struct BoundsOfHead {
  const std::int32_t *begin = nullptr, *end = nullptr;

  // What is left of `seen`, entries of `keys`, for query row i.
  LONGSTRIDE_HOST_DEVICE Interval clamp(Interval seen, const RowSet& keys, std::int32_t i) const {
    if (begin == nullptr) return seen;
    const std::int32_t first = keys.count_below(begin[i]), beyond = keys.count_below(end[i]);
    return {seen.begin > first ? seen.begin : first, seen.end < beyond ? seen.end : beyond};
  }
};

}  // namespace longstride::kernels
