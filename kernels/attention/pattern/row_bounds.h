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
  bool documents = false;  // n_q = n_k rows, and those of one interval are within it and share it

  bool given() const { return begin.given(); }
  static RowBounds of_documents(const Tensor& begin, const Tensor& end) { return {begin, end, true}; }
};

// The first of n numbers, which never decrease, that is above x; n if none is.
LONGSTRIDE_HOST_DEVICE inline std::int32_t first_above(const std::int32_t* numbers, std::int32_t n, std::int32_t x) {
  std::int32_t low = 0, high = n;
  while (low < high) {
    const std::int32_t middle = low + (high - low) / 2;
    if (numbers[middle] > x)
      high = middle;
    else
      low = middle + 1;
  }
  return low;
}

// The bounds of one sequence and head, as kernels read them; null where nothing is clamped.
struct BoundsOfHead {
  const std::int32_t *begin = nullptr, *end = nullptr;

  LONGSTRIDE_HOST_DEVICE bool given() const { return begin != nullptr; }

  // The key rows of n that query row i may see.
  LONGSTRIDE_HOST_DEVICE Interval rows(std::int32_t i, std::int32_t n) const {
    return begin == nullptr ? Interval{0, n} : Interval{begin[i], end[i] < n ? end[i] : n};
  }
  // The entries of `keys` that are left of `seen` for query row i.
  LONGSTRIDE_HOST_DEVICE Interval clamp(Interval seen, const RowSet& keys, std::int32_t i) const {
    if (!given()) return seen;
    const std::int32_t first = keys.count_below(begin[i]), beyond = keys.count_below(end[i]);
    return {seen.begin > first ? seen.begin : first, seen.end < beyond ? seen.end : beyond};
  }
};

// The bounds of all sequences and heads, passed to kernels by value.
struct BoundsView {
  const std::int32_t *begin = nullptr, *end = nullptr;
  std::int64_t batch = 0, head = 0;  // strides

  BoundsView() = default;
  explicit BoundsView(const RowBounds& bounds) : BoundsView(bounds.begin, bounds.end) {}
  BoundsView(const Tensor& first, const Tensor& beyond) {
    if (!first.given()) return;
    begin = first.as<const std::int32_t>();
    end = beyond.as<const std::int32_t>();
    head = first.size(1) > 1 ? first.size(2) : 0;
    batch = first.size(1) * first.size(2);
  }
  LONGSTRIDE_HOST_DEVICE BoundsOfHead of(std::int32_t sequence, std::int32_t number) const {
    if (begin == nullptr) return {};
    const std::int64_t at = sequence * batch + number * head;
    return {begin + at, end + at};
  }
};

inline BoundsOfHead bounds_of(const RowBounds& bounds, std::int64_t sequence, std::int64_t head) {
  return BoundsView(bounds).of(static_cast<std::int32_t>(sequence), static_cast<std::int32_t>(head));
}

}  // namespace longstride::kernels
