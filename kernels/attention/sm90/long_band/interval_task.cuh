// Tasks of the kernel that sums dQ in turns, where every query sees one interval of keys (interval_order.h).
#pragma once
#include <algorithm>
#include <cstdint>

#include "kernels/attention/sm90/long_band/interval_order.h"
#include "kernels/attention/sm90/long_band/seen_keys.cuh"
#include "kernels/attention/sm90/long_band/turn_task.cuh"

namespace longstride::kernels::cuda::sm90 {

struct IntervalProblem : TurnProblem {  // its bounds are seen from the keys
  QueryIntervals intervals;
  BoundsView tiles;  // first and last key tile of every query tile
  std::int32_t key_tiles;
};

template <int Strips>
struct IntervalTask : TurnTask<Strips> {
  using Base = TurnTask<Strips>;
  using Base::key, Base::lane, Base::group, Base::head, Base::sequence, Base::base, Base::length, Base::step;
  using Problem = IntervalProblem;
  template <class Kernel>
  using Seen = SeenKeys;
  struct alignas(16) Ticket {
    std::int32_t key, head_and_sequence, begin, end, ends_before, begins_after, lane_and_group, valid;
  };
  static constexpr std::int32_t most_heads = 256, most_lanes = 65536;
  // Query tiles: the task's, the end of those of the key tile before, and the first of the key tile behind.
  std::int32_t first_query, end_query, ends_before, begins_after;

  __device__ IntervalOrder order(const Problem& problem, std::int32_t of_sequence, std::int32_t of_head) const {
    const BoundsOfHead tiles = problem.tiles.of(of_sequence, of_head);
    return {tiles.begin, tiles.end, problem.ring.tiles, problem.key_tiles};
  }
  __device__ Ticket ticket(const Problem& problem, std::uint32_t index) const {
    const TurnOrder at(problem, index);
    const IntervalOrder of = order(problem, at.sequence, at.head);
    return {at.key,
            at.head + at.sequence * most_heads,
            of.begin_of(at.key),
            of.end_of(at.key),
            of.end_of(at.key - 1),
            of.begin_of(at.key + 1),
            at.lane + at.group * most_lanes,
            1};
  }
  __device__ void take(const Problem& problem, const Ticket& t) {
    key = t.key;
    head = t.head_and_sequence % most_heads;
    sequence = t.head_and_sequence / most_heads;
    first_query = t.begin;
    end_query = t.end;
    ends_before = t.ends_before;
    begins_after = t.begins_after;
    lane = t.lane_and_group % most_lanes;
    group = t.lane_and_group / most_lanes;
    base = 0;
    length = problem.n;
    step = 1;
  }

  __device__ std::int32_t begin() const { return first_query; }
  __device__ std::int32_t end(const Problem&) const { return end_query; }
  // Of a strip, whose own queries may be fewer.
  __device__ std::int32_t begin(const Problem& problem, int strip) const {
    const std::int32_t row = first_row(strip);
    if (row >= problem.n) return first_query;
    return min(max(problem.intervals.first_query(row, bounds(problem)) / band_rows, first_query), end_query);
  }
  __device__ std::int32_t end(const Problem& problem, int strip) const {
    const std::int32_t row = first_row(strip), begins = begin(problem, strip);
    if (row >= problem.n) return begins;
    const std::int32_t last = min(row + band_rows, problem.n) - 1,
                       beyond = problem.intervals.beyond_query(last, bounds(problem));
    return min(max((beyond + band_rows - 1) / band_rows, begins), end_query);
  }
  __device__ std::int32_t turn(const Problem& problem, std::int32_t query) const {
    return order(problem, sequence, head).turn(key, query);
  }
  __device__ bool is_first(const Problem&, std::int32_t query) const { return query >= ends_before; }
  __device__ bool is_last(const Problem&, std::int32_t query) const { return query < begins_after; }

  template <class Kernel>
  __device__ SeenKeys seen(const Kernel& kernel, int strip) const {
    const IntervalProblem& problem = kernel.problem;
    SeenKeys seen;
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const std::int32_t row = first_row(strip) + kernel.warp * 16 + kernel.lane / 4 + 8 * r;
      seen.begin[r] = row < length ? problem.intervals.first_query(row, bounds(problem)) : SeenKeys::none;
      seen.end[r] = row < length ? problem.intervals.beyond_query(row, bounds(problem)) : SeenKeys::none;
    }
    seen.share();
    return seen;
  }
  template <class Kernel, int Count>
  __device__ void weigh(const Kernel& kernel, float (&s)[Count], std::uint32_t (&weights)[4][4], const SeenKeys& seen,
                        std::int32_t begin, const typename Kernel::Statistics& of) const {
    seen.mask(s, begin, kernel.lane);
    kernel.template weigh_and_pack<true>(s, weights, kernel.problem.scale * log2_e, of, {}, begin);
  }

 private:
  __device__ std::int32_t first_row(int strip) const { return (Strips * key + strip) * band_rows; }
  __device__ BoundsOfHead bounds(const Problem& problem) const { return problem.bounds.of(sequence, head); }
};

}  // namespace longstride::kernels::cuda::sm90
