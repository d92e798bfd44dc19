// Which keys a query sees, for CPU and GPU kernels alike. A dilated head falls into residue classes of positions that
// never see each other. Within a class, entry e stands for position first + e step, queries are the last entries, and a
// query sees the entries `m` before it, for m of one interval: to kernels every class is attention without dilation.
#pragma once
#include <cmath>
#include <cstdint>

#include "kernels/base/host_device.h"
#include "kernels/base/philox.h"
#include "kernels/distance_attention/distance_attention.h"

namespace longstride::kernels {

// The entries of one residue class of a (sequence, head).
struct ResidueClass {
  std::int32_t first, step;  // position of entry 0, and from one entry to the next
  std::int32_t entries;      // keys; the last ones are queries as well
  std::int32_t first_query;  // entry of the first query
  std::int32_t first_key;    // entry of the first key that is not hidden

  LONGSTRIDE_HOST_DEVICE std::int32_t position(std::int32_t entry) const { return first + entry * step; }
};

LONGSTRIDE_HOST_DEVICE inline std::int32_t entries_before(std::int32_t position, std::int32_t first,
                                                          std::int32_t step) {
  return position <= first ? 0 : (position - first + step - 1) / step;
}

// `number` is below `step`, the head's dilation; classes beyond the last key are empty.
LONGSTRIDE_HOST_DEVICE inline ResidueClass residue_class(std::int32_t number, std::int32_t step, std::int32_t n_q,
                                                         std::int32_t n_k, std::int32_t first_key) {
  return {number, step, entries_before(n_k, number, step), entries_before(n_k - n_q, number, step),
          entries_before(first_key, number, step)};
}

// The interval [begin, end) of the number m of entries between a query and its keys.
struct Reach {
  std::int32_t begin, end;
};

// The weight of a distance (distance_attention.h), in the arithmetic of T.
template <class T>
struct Ramp {
  static constexpr T smallest = T(1) / 1024;  // lower weights are 0
  T end = 0;                                  // where the ramp reaches 0
  T slope = 0;                                // 1 / ramp; 0: every weight is 1

  Ramp() = default;
  LONGSTRIDE_HOST_DEVICE Ramp(T span, T longest_span, T ramp) : end(ramp + span * longest_span), slope(1 / ramp) {}

  LONGSTRIDE_HOST_DEVICE T weight(std::int32_t distance) const {
    if (slope == 0) return 1;
    const T w = (end - static_cast<T>(distance)) * slope;
    return w < smallest ? T(0) : w > 1 ? T(1) : w;
  }
  // Entries of a class with this step up to the first of weight 0, at most `most`.
  LONGSTRIDE_HOST_DEVICE std::int32_t entries(std::int32_t step, std::int32_t most) const {
    if (slope == 0) return most;
    const T beyond = (end - smallest / slope) / static_cast<T>(step);
    if (!(beyond > 0)) return 0;
    return beyond < static_cast<T>(most) ? static_cast<std::int32_t>(beyond) + 1 : most;
  }
};

template <class T>
LONGSTRIDE_HOST_DEVICE inline Reach reach_of(std::int32_t n_k, std::int32_t window, bool self, std::int32_t step,
                                             const Ramp<T>& ramp) {
  const std::int32_t most = window > 0 && window < n_k ? window : n_k;
  return {self ? 0 : 1, ramp.entries(step, most)};
}

// The row of T that entries m apart read.
LONGSTRIDE_HOST_DEVICE inline std::int32_t table_row(std::int32_t m, std::int32_t step, std::int32_t distances) {
  return m >= (distances - 1 + step - 1) / step ? distances - 1 : m * step;
}

// ProbabilityDropout as kernels read it.
struct KeptProbabilities {
  std::uint64_t seed = 0;
  std::uint32_t domain = 0;
  std::uint32_t limit = 0;  // words below it drop; 0: nothing is dropped or drawn
  const std::int64_t* step = nullptr;
  std::int64_t first_sequence = 0;
  std::int32_t heads = 0, n_q = 0, groups = 0;

  KeptProbabilities() = default;
  explicit KeptProbabilities(const DistanceScores& s)
      : heads(static_cast<std::int32_t>(s.q.size(2))),
        n_q(static_cast<std::int32_t>(s.q.size(1))),
        groups(static_cast<std::int32_t>((s.k.size(1) + 3) / 4)) {
    if (s.dropout.p <= 0) return;
    seed = s.dropout.seed;
    domain = domain_of(Purpose::attention_dropout, s.dropout.layer);
    limit = static_cast<std::uint32_t>(std::ceil(static_cast<double>(s.dropout.p) * 4294967296.0));
    step = s.dropout.step;
    first_sequence = s.dropout.first_sequence;
  }

  LONGSTRIDE_HOST_DEVICE std::uint32_t step_word() const { return limit > 0 ? static_cast<std::uint32_t>(*step) : 0; }
  // The group of key 0 in query i's row.
  LONGSTRIDE_HOST_DEVICE std::uint64_t row(std::int32_t sequence, std::int32_t head, std::int32_t i) const {
    return static_cast<std::uint64_t>((((first_sequence + sequence) * heads + head) * n_q + i) * groups);
  }
  // The numbers drawn for a key of a row; requires limit > 0.
  LONGSTRIDE_HOST_DEVICE Philox4 draw(std::uint64_t row, std::int32_t key, std::uint32_t step_now) const {
    return philox(seed, row + static_cast<std::uint64_t>(key / 4), step_now, domain);
  }
  LONGSTRIDE_HOST_DEVICE bool keeps(const Philox4& drawn, std::int32_t key) const {
    const std::uint32_t even = key & 2 ? drawn.word[2] : drawn.word[0], odd = key & 2 ? drawn.word[3] : drawn.word[1];
    return (key & 1 ? odd : even) >= limit;
  }
  LONGSTRIDE_HOST_DEVICE bool keeps(std::uint64_t row, std::int32_t key, std::uint32_t step_now) const {
    return limit == 0 || keeps(draw(row, key, step_now), key);
  }
};

}  // namespace longstride::kernels
