// The keys that a query may see at all, read from memory: they clamp every part of a plan. Documents that do not mix
// are bounds, and so are intervals that a layer computes (a dense part of both directions, clamped).
#pragma once
#include <cstdint>

#include "kernels/attention/pattern/plan.h"
#include "kernels/base/host_device.h"
#include "kernels/base/tensor.h"

namespace longstride::kernels {

// (batch, heads or 1, n_q) i32, contiguous: query row i sees key rows of [begin_i, end_i), none if it is empty. Neither
// may decrease along a row: tiles follow from the first and last of their queries. Kernels do not check it.
struct RowBounds {
  Tensor begin = {}, end = {};

  bool given() const { return begin.given(); }
};

// The bounds of one sequence and head, as kernels read them; null where nothing is clamped.
struct BoundsOfHead {
  const std::int32_t *begin = nullptr, *end = nullptr;

  LONGSTRIDE_HOST_DEVICE bool given() const { return begin != nullptr; }

  // The rest of `seen`, entries of `keys`, for query row i.
  LONGSTRIDE_HOST_DEVICE Interval clamp(Interval seen, const RowSet& keys, std::int32_t i) const {
    if (!given()) return seen;
    const std::int32_t first = keys.count_below(begin[i]), beyond = keys.count_below(end[i]);
    return {seen.begin > first ? seen.begin : first, seen.end < beyond ? seen.end : beyond};
  }
};

inline BoundsOfHead bounds_of(const RowBounds& bounds, std::int64_t sequence, std::int64_t head) {
  if (!bounds.given()) return {};
  const std::int64_t row = (sequence * bounds.begin.size(1) + head % bounds.begin.size(1)) * bounds.begin.size(2);
  return {bounds.begin.as<const std::int32_t>() + row, bounds.end.as<const std::int32_t>() + row};
}

}  // namespace longstride::kernels
