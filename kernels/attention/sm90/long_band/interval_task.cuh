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
  // The first key tile of every query tile, and every key tile's query tiles, for each row of bounds.
  const std::int32_t *first_key, *begin, *end;
  std::int32_t key_tiles, rows_of_sequence, rows_of_head;
  KeyRotation rotation;

  __device__ std::int32_t row(std::int32_t sequence, std::int32_t head) const {
    return sequence * rows_of_sequence + head * rows_of_head;
  }
};

struct SeenStrip : SeenKeys {
  std::int32_t first, beyond;  // query tiles that see any of the strip's keys
};

template <int Strips>
struct IntervalTask : TurnTask<Strips> {
  using Base = TurnTask<Strips>;
  using Base::key, Base::lane, Base::group, Base::head, Base::sequence, Base::base, Base::length, Base::step;
  using Problem = IntervalProblem;
  template <class Kernel>
  using Seen = SeenStrip;
  struct alignas(16) Ticket {
    std::int32_t key, head_and_sequence, begin, end, ends_before, begins_after, lane_and_group, valid;
  };
  static constexpr std::int32_t most_heads = 256, most_lanes = 65536;
  // Query tiles: the task's, the end of those of the key tile before, and the first of the key tile behind.
  std::int32_t first_query, end_query, ends_before, begins_after;

  __device__ Ticket ticket(const Problem& problem, std::uint32_t index) const {
    const TurnOrder at(problem, index);
    const std::int64_t i = std::int64_t{problem.row(at.sequence, at.head)} * problem.key_tiles + at.key;
    return {at.key,
            at.head + at.sequence * most_heads,
            problem.begin[i],
            problem.end[i],
            at.key == 0 ? 0 : problem.end[i - 1],
            at.key + 1 == problem.key_tiles ? problem.ring.tiles : problem.begin[i + 1],
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
  // A strip's, which may be fewer.
  __device__ std::int32_t begin(const Problem&, int, const SeenStrip& seen) const { return seen.first; }
  __device__ std::int32_t end(const Problem&, int, const SeenStrip& seen) const { return seen.beyond; }
  __device__ std::int32_t turn(const Problem& problem, std::int32_t query) const {
    return key - problem.first_key[std::int64_t{problem.row(sequence, head)} * problem.ring.tiles + query];
  }
  __device__ bool is_first(const Problem&, std::int32_t query) const { return query >= ends_before; }
  __device__ bool is_last(const Problem&, std::int32_t query) const { return query < begins_after; }

  __device__ std::int32_t strip_at(const Problem& problem, int strip) const {
    return problem.rotation.tile_of(head, Strips * key + strip, problem.ring.tiles);
  }
  // Reads all numbers at once, as a task waits for them.
  template <class Kernel>
  __device__ SeenStrip seen(const Kernel& kernel, int strip) const {
    const IntervalProblem& problem = kernel.problem;
    const BoundsOfHead bounds = problem.bounds.of(sequence, head);
    const std::int32_t row = (Strips * key + strip) * band_rows, own = row + kernel.warp * 16 + kernel.lane / 4;
    SeenStrip seen;
    const std::int32_t first = row < length ? problem.intervals.first_query(row, bounds) : length,
                       beyond =
                           row < length ? problem.intervals.beyond_query(min(row + band_rows, length) - 1, bounds) : 0;
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const bool there = own + 8 * r < length;
      seen.begin[r] = there ? problem.intervals.first_query(own + 8 * r, bounds) : SeenKeys::none;
      seen.end[r] = there ? problem.intervals.beyond_query(own + 8 * r, bounds) : SeenKeys::none;
    }
    seen.share();
    seen.first = min(max(first / band_rows, first_query), end_query);
    seen.beyond = min(max((beyond + band_rows - 1) / band_rows, seen.first), end_query);
    return seen;
  }
  template <class Kernel, int Count>
  __device__ void weigh(const Kernel& kernel, float (&s)[Count], std::uint32_t (&weights)[4][4], const SeenKeys& seen,
                        std::int32_t begin, const typename Kernel::Statistics& of) const {
    seen.weigh(kernel, s, weights, begin, of);
  }
};

}  // namespace longstride::kernels::cuda::sm90
