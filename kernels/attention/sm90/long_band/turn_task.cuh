// The parameters of the kernel that sums dQ in turns, and the order of its tasks.
#pragma once
#include <cstdint>

#include "kernels/attention/sm90/long_band/long_band_math.cuh"
#include "kernels/attention/sm90/long_band/long_band_order.h"

namespace longstride::kernels::cuda::sm90 {

struct TurnProblem : LongBandProblem {
  TurnRing ring;
  BoundsView bounds;                      // query rows that see a key: where its document ends
  std::uint32_t group_tasks, last_lanes;  // lanes of the last group
  std::int32_t groups;
  float* sums;         // (slots, 64 x padded head)
  unsigned* counters;  // (slots)
  unsigned* tasks_taken;
};

// A task's place in the order: tasks of a group are in the order of keys, and neighbours have different heads.
struct TurnOrder {
  std::int32_t key, head, residue, sequence, lane, group;

  __device__ TurnOrder(const TurnProblem& problem, std::uint32_t index) {
    const std::uint32_t g = index / problem.group_tasks, rest = index - g * problem.group_tasks;
    const auto all_lanes = static_cast<std::uint32_t>(problem.ring.lanes);
    const std::uint32_t lanes = static_cast<std::int32_t>(g) + 1 == problem.groups ? problem.last_lanes : all_lanes;
    const std::uint32_t k = rest / lanes, l = rest - k * lanes;
    std::uint32_t unit = g * all_lanes + l;
    const auto heads = static_cast<std::uint32_t>(problem.heads), classes = static_cast<std::uint32_t>(problem.classes);
    key = static_cast<std::int32_t>(k);
    head = static_cast<std::int32_t>(unit % heads);
    unit /= heads;
    residue = static_cast<std::int32_t>(unit % classes);
    sequence = static_cast<std::int32_t>(unit / classes);
    lane = static_cast<std::int32_t>(l);
    group = static_cast<std::int32_t>(g);
  }
};

// A key tile of a band.
template <int Strips>
struct TurnTask : BandBackwardLargeTask {
  static constexpr int strips = Strips;
  using Problem = TurnProblem;
  template <class Kernel>
  using Seen = typename Kernel::Common::Seen;
  // The loading warp's message to the others.
  struct alignas(16) Ticket {
    std::int32_t key, head, sequence, base, length, lane, group, valid;
  };
  std::int32_t key, lane, group;

  __device__ Ticket ticket(const TurnProblem& problem, std::uint32_t index) const {
    const TurnOrder at(problem, index);
    const std::int32_t first = problem.set.base + at.residue;
    const std::int32_t entries =
        is_natural(problem) ? problem.set.length : (problem.n - first + problem.set.period - 1) / problem.set.period;
    return {at.key, at.head, at.sequence, first, entries, at.lane, at.group, 1};
  }
  __device__ static bool is_natural(const TurnProblem& problem) { return problem.set.run >= problem.set.period; }
  __device__ void take(const TurnProblem& problem, const Ticket& t) {
    key = t.key;
    head = t.head;
    sequence = t.sequence;
    base = t.base;
    length = t.length;
    lane = t.lane;
    group = t.group;
    step = is_natural(problem) ? 1 : problem.set.period;
  }

  // The query tiles that see the task's keys, or one strip of them.
  __device__ static LongBandOrder order(const TurnProblem& problem) {
    return {problem.shape, problem.set.length, Strips};
  }
  __device__ std::int32_t begin() const { return Strips * key; }
  __device__ std::int32_t end(const TurnProblem& problem) const { return order(problem).end_of(key); }
  template <class Seen>
  __device__ std::int32_t begin(const TurnProblem& problem, int strip, const Seen&) const {
    return order(problem).begin_of(key, strip);
  }
  template <class Seen>
  __device__ std::int32_t end(const TurnProblem& problem, int strip, const Seen&) const {
    return order(problem).end_of(key, strip);
  }
  // The turn at the sum of a query tile.
  __device__ std::int32_t turn(const TurnProblem& problem, std::int32_t query) const {
    return order(problem).turn(key, query);
  }
  __device__ bool is_first(const TurnProblem& problem, std::int32_t query) const {
    return order(problem).first_key(query) >= key;
  }
  __device__ bool is_last(const TurnProblem& problem, std::int32_t query) const {
    return order(problem).is_last(key, query);
  }

  // The rows of a strip of the task's keys: which tile of all keys they are.
  __device__ std::int32_t strip_at(const TurnProblem&, int strip) const { return Strips * key + strip; }
  // Loads the task's keys, or values, by a warp.
  template <class Kernel>
  __device__ void load_keys(const Kernel& kernel, char* to, std::uint64_t* full) const {
    load(kernel, kernel.problem.k, to, full);
  }
  template <class Kernel>
  __device__ void load_values(const Kernel& kernel, char* to, std::uint64_t* full) const {
    load(kernel, kernel.problem.v, to, full);
  }
  template <class Kernel>
  __device__ void load(const Kernel& kernel, const RowMaps& maps, char* to, std::uint64_t* full) const {
    kernel.load_rows(
        to, maps, [&](int strip) { return kernel.corner(kernel.task.strip_at(kernel.problem, strip), 0); }, full);
  }
  template <class Kernel>
  __device__ auto seen(const Kernel& kernel, int strip) const {
    auto seen = kernel.seen_of(Strips * key + strip);
    const BoundsOfHead bounds = kernel.problem.bounds.of(sequence, head);
    if (bounds.begin == nullptr) return seen;
    // Queries behind a document see none of its keys.
    const auto end_of = [&](std::int32_t entry) {
      const std::int32_t row = bounds.end[position(min(entry, length - 1))];
      return (row - base + step - 1) / step;
    };
    const std::int32_t own = seen.first + kernel.lane / 4;
    seen.end[0] = min(seen.end[0], end_of(own));
    seen.end[1] = min(seen.end[1], end_of(own + 8));
    seen.first_end = min(seen.first_end, end_of(seen.first));
    return seen;
  }
  // Turns S into P, and P into the product's operand, for the query tile that begins there.
  template <class Kernel, class Seen, int Count>
  __device__ void weigh(const Kernel& kernel, float (&s)[Count], std::uint32_t (&weights)[4][4], const Seen& seen,
                        std::int32_t begin, const typename Kernel::Statistics& of) const {
    kernel.weigh_tile(s, weights, seen, begin, of);
  }
  template <class Kernel, class Seen, int Count>
  __device__ void store(const Kernel& kernel, const Seen&, int strip, const Gradient& gradient,
                        const float (&values)[Count], float factor) const {
    kernel.template store<2 * Count>(gradient, kernel.task.strip_at(kernel.problem, strip), values, factor);
  }
};

}  // namespace longstride::kernels::cuda::sm90
