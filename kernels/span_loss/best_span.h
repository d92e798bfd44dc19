// The span with the best score: of positions i <= j, start[i] + end[j]. Runs of positions join from left to right, so
// that threads may share a row.
#pragma once
#include <cstdint>
#include <limits>

#include "kernels/base/host_device.h"

namespace longstride::kernels {

template <class T>
struct BestSpan {
  T start = -std::numeric_limits<T>::infinity(), end = start, both = start;  // the best scores
  std::int32_t starts = 0, ends = 0, first = 0, last = 0;                    // and their positions

  LONGSTRIDE_HOST_DEVICE static BestSpan of(T start, T end, std::int32_t position) {
    return {start, end, start + end, position, position, position, position};
  }
  // This run, and then another. The earlier of equal ones is kept.
  LONGSTRIDE_HOST_DEVICE BestSpan join(const BestSpan& then) const {
    BestSpan out = *this;
    if (start + then.end > out.both) out.both = start + then.end, out.first = starts, out.last = then.ends;
    if (then.both > out.both) out.both = then.both, out.first = then.first, out.last = then.last;
    if (then.start > start) out.start = then.start, out.starts = then.starts;
    if (then.end > end) out.end = then.end, out.ends = then.ends;
    return out;
  }
};

// The share that two spans have in common: twice the common positions by the sum of their lengths. Position 0 stands
// for no span, which equals itself alone.
struct SpanPlaces {
  std::int64_t first = 0, last = 0;

  LONGSTRIDE_HOST_DEVICE float shared(const SpanPlaces& other) const {
    if (last == 0 || other.last == 0) return last == other.last ? 1.0f : 0.0f;
    const std::int64_t begin = first > other.first ? first : other.first, end = last < other.last ? last : other.last;
    if (begin > end) return 0.0f;
    return 2 * static_cast<float>(end - begin + 1) /
           static_cast<float>(last - first + 1 + other.last - other.first + 1);
  }
};

// The best span of a row, or none: `none` is the sum of position 0's scores, and `others` has all other positions.
template <class T>
LONGSTRIDE_HOST_DEVICE SpanPlaces best_places(T none, const BestSpan<T>& others) {
  if (!(others.both > none)) return {};
  return {others.first, others.last};
}

}  // namespace longstride::kernels
