// A DecodePlan as decoding kernels on a GPU read it: one head at a time, by value.
#pragma once
#include <cstddef>
#include <cstdint>
#include <stdexcept>

#include "kernels/attention/decode/decode.h"

namespace longstride::kernels::cuda {

struct HeadGeometry {
  static constexpr int most_parts = 3;  // own block, summary rows, and the column of summary_inclusive
  CacheRing rings[most_parts];
  CachedPart parts[most_parts];  // `ring` counts from this head's first
  std::int32_t ring_count = 0, part_count = 0;
  bool shares = false;  // another head appends to the rings
};

inline HeadGeometry geometry_of(const DecodePlan& plan, std::size_t head) {
  const DecodeHead& h = plan.heads[head];
  if (h.rings > HeadGeometry::most_parts || h.parts > HeadGeometry::most_parts)
    throw std::logic_error("a head with more parts than decoding on a GPU supports");
  HeadGeometry g;
  g.ring_count = h.rings;
  g.part_count = h.parts;
  g.shares = h.shares;
  for (std::int32_t r = 0; r < h.rings; ++r) g.rings[r] = plan.rings[static_cast<std::size_t>(h.first_ring + r)];
  for (std::int32_t p = 0; p < h.parts; ++p) {
    g.parts[p] = plan.parts[static_cast<std::size_t>(h.first_part + p)];
    g.parts[p].ring -= h.first_ring;
  }
  return g;
}

// The keys of one part that the query at a position attends to, and where the cache keeps them.
struct KeyRows {
  RowSet keys;
  Interval in;
  std::int64_t first_row;
  std::int32_t capacity;
  bool by_entry;  // otherwise the ring is in natural order

  constexpr std::int32_t count() const { return in.end > in.begin ? in.end - in.begin : 0; }
  constexpr std::int32_t position(std::int32_t index) const { return keys.position(in.begin + index); }
  constexpr std::int64_t row(std::int32_t index) const {
    return first_row + (by_entry ? in.begin + index : position(index)) % capacity;
  }
};

// The same rows without a division per key: key i has row first + (start + i step) mod capacity. The step is 0 where
// the rows are not on such a line (runs of several keys in a ring that keeps everything).
struct alignas(16) KeyLine {
  std::int32_t first, start, step, capacity;

  constexpr std::int32_t row(std::int32_t index) const {
    std::int32_t at = start + index * step;
    if (at >= capacity) at -= capacity;
    if (at >= capacity) at %= capacity;  // rings that are read in steps keep everything: not seen yet
    return first + at;
  }
};

constexpr KeyLine key_line_of(const KeyRows& r) {
  if (r.count() == 0) return {};
  const bool neighbours = r.by_entry || r.keys.run == r.keys.period;
  const std::int32_t step = neighbours ? 1 : r.keys.run == 1 ? r.keys.period : 0;
  const std::int32_t begin = r.by_entry ? r.in.begin : r.keys.position(r.in.begin);
  return {static_cast<std::int32_t>(r.first_row), begin % r.capacity, step, r.capacity};
}

constexpr KeyRows key_rows_of(const HeadGeometry& head, int part, std::int32_t n, std::int32_t position) {
  const CachedPart& cached = head.parts[part];
  const CacheRing& ring = head.rings[cached.ring];
  const RowSet keys = rows_within(cached.part.keys, position % cached.classes, n);
  return {keys, cached.part.interval(keys, position), ring.first_row, ring.capacity, ring.set == keys};
}

// The row of a ring that holds `position`; -1 if the ring does not keep it.
constexpr std::int64_t ring_row(const CacheRing& ring, std::int32_t position) {
  const std::int32_t entry = ring.set.count_below(position);
  return ring.set.count_below(position + 1) > entry ? ring.first_row + entry % ring.capacity : -1;
}

}  // namespace longstride::kernels::cuda
