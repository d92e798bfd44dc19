// A pass as the forward kernel reads it: the interval of each query row by a few multiplications, without divisions.
#pragma once
#include <cstdint>

#include "kernels/attention/sm90/general/geometry.h"

namespace longstride::kernels::cuda::sm90 {

// x / d for 0 <= x < 2^31 by one multiplication (Granlund and Montgomery 1994).
struct Divisor {
  std::uint32_t value = 1, factor = 1, shift = 0;

  Divisor() = default;
  explicit Divisor(std::int32_t d) : value(static_cast<std::uint32_t>(d)) {
    while (std::uint64_t{1} << shift < value) ++shift;
    factor = static_cast<std::uint32_t>((std::uint64_t{1} << 32) * ((std::uint64_t{1} << shift) - value) / value + 1);
  }
#ifdef __CUDACC__
  __device__ std::int32_t quotient(std::int32_t x) const {
    return static_cast<std::int32_t>((__umulhi(static_cast<std::uint32_t>(x), factor) + x) >> shift);
  }
#endif
};

struct LimitShape {
  std::int32_t back = 0, blocks = 0;
  Divisor block;

  LimitShape() = default;
  explicit LimitShape(const Limit& limit)
      : back(limit.back), blocks(limit.block), block(limit.block > 0 ? limit.block : 1) {}
#ifdef __CUDACC__
  __device__ std::int32_t of(std::int32_t i) const { return (blocks > 0 ? block.quotient(i) * blocks : i) - back; }
#endif
};

struct PartShape {
  std::int32_t base = 0, natural = 0, kind = 0;
  Divisor run, period;
  LimitShape low, high;

  PartShape() = default;
  PartShape(const Part& part, int kind_of_rows)
      : base(part.keys.base),
        natural(part.keys.run >= part.keys.period ? 1 : 0),
        kind(kind_of_rows),
        run(part.keys.run),
        period(part.keys.period),
        low(part.low),
        high(part.high) {}
#ifdef __CUDACC__
  // Number of entries of the class's row set below p, which is at most the number of positions.
  __device__ std::int32_t count_below(std::int32_t p, std::int32_t residue) const {
    const std::int32_t past = max(p - base - residue, 0);
    if (natural) return past;
    const std::int32_t periods = period.quotient(past), width = static_cast<std::int32_t>(run.value);
    return periods * width + min(past - periods * static_cast<std::int32_t>(period.value), width);
  }
  // Entries `within` alone, which are positions.
  __device__ Interval interval(std::int32_t position, std::int32_t residue, Interval within) const {
    return {count_below(max(low.of(position), within.begin), residue),
            count_below(min(high.of(position) + 1, within.end), residue)};
  }
#endif
};

// Queries come in natural order or as residue classes: entry t of class s is at s + step * t.
struct PassShape {
  std::int32_t step = 1, kind = 0, parts = 0, tiles = 0;
  Divisor classes;
  PartShape part[PassGeometry::most_parts];
};

}  // namespace longstride::kernels::cuda::sm90
