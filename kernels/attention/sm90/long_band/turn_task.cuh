// The parameters of the kernel that sums dQ in turns, and the order of its tasks.
#pragma once
#include <cstdint>

#include "kernels/attention/sm90/long_band/long_band_math.cuh"
#include "kernels/attention/sm90/long_band/long_band_walk.h"

namespace longstride::kernels::cuda::sm90 {

struct TurnProblem : LongBandProblem {
  TurnRing ring;
  std::uint32_t group_tasks, last_lanes;  // lanes of the last group
  std::int32_t groups;
  float* sums;         // (places, 64 x 64)
  unsigned* counters;  // (places)
  unsigned* tasks_taken;
};

// What the loading warp tells the others.
struct alignas(16) TurnTicket {
  std::int32_t key, head, sequence, base, length, lane, group, valid;
};

struct TurnTask : BandBackwardLargeTask {
  std::int32_t key, lane, group;

  // Tasks of a group are in the order of keys, and neighbours have different heads.
  __device__ TurnTicket ticket(const TurnProblem& problem, std::uint32_t index) const {
    const std::uint32_t g = index / problem.group_tasks, rest = index - g * problem.group_tasks;
    const auto all_lanes = static_cast<std::uint32_t>(problem.ring.lanes);
    const std::uint32_t lanes = static_cast<std::int32_t>(g) + 1 == problem.groups ? problem.last_lanes : all_lanes;
    const std::uint32_t k = rest / lanes, l = rest - k * lanes;
    std::uint32_t unit = g * all_lanes + l;
    const auto heads = static_cast<std::uint32_t>(problem.heads),
               segments = static_cast<std::uint32_t>(problem.segments);
    TurnTicket t;
    t.key = static_cast<std::int32_t>(k);
    t.head = static_cast<std::int32_t>(unit % heads);
    unit /= heads;
    t.base = problem.set.base + static_cast<std::int32_t>(unit % segments);
    t.sequence = static_cast<std::int32_t>(unit / segments);
    t.length =
        is_natural(problem) ? problem.set.length : (problem.n - t.base + problem.set.period - 1) / problem.set.period;
    t.lane = static_cast<std::int32_t>(l);
    t.group = static_cast<std::int32_t>(g);
    t.valid = 1;
    return t;
  }
  __device__ static bool is_natural(const TurnProblem& problem) { return problem.set.run >= problem.set.period; }
  __device__ void take(const TurnProblem& problem, const TurnTicket& t) {
    key = t.key;
    head = t.head;
    sequence = t.sequence;
    base = t.base;
    length = t.length;
    lane = t.lane;
    group = t.group;
    step = is_natural(problem) ? 1 : problem.set.period;
  }
};

}  // namespace longstride::kernels::cuda::sm90
