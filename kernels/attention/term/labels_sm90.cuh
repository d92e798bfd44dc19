// The term of labels (labels.h) in Hopper's general kernels, whose rows are in natural order. Labels are either clipped
// distances or of the own group and of others. So nearly all tiles have one label: the first or the last, far behind a
// row or far ahead of it, or of other groups; a score then takes one number of its query. In the rest a pair's label is
// found by comparison, and each distance within the clip is that of one pair of a query: a number is read, and a
// gradient is written, without a sum.
#pragma once
#include <cstdint>

#include "kernels/attention/term/labels_sm90.h"
#include "kernels/base/cuda_types.cuh"
#include "kernels/gpu/fragment.cuh"
#include "kernels/gpu/lane.cuh"
#include "kernels/gpu/mma.cuh"

namespace longstride::kernels::cuda::sm90 {

// The labels of a warp's 16 rows and a tile's columns.
struct TileLabels {
  static constexpr int mixed = 2;
  int which = 0;              // all pairs have the first label (0) or the last (1); or they are mixed
  std::int32_t distance = 0;  // key less query of the thread's first pair
  std::uint32_t own = 0;      // its pairs of one group: a bit per element of the accumulator
};

// The range of the groups of a warp's rows, equal in all lanes. Most tiles have only others.
struct GroupRange {
  std::int32_t least, most;

  __device__ explicit GroupRange(const std::int32_t (&group)[2])
      : least(__reduce_min_sync(~0u, min(group[0], group[1]))), most(__reduce_max_sync(~0u, max(group[0], group[1]))) {}
  __device__ bool meets(const GroupRange& other) const { return least <= other.most && other.least <= most; }
};

// Pairs of a thread and a tile of Columns columns; the thread's rows are 8 apart, its first row the tile's first
// pair's.
template <int Columns, class F>
__device__ inline void each_pair(F&& f) {
#pragma unroll
  for (int j = 0; j < Columns / 8; ++j)
#pragma unroll
    for (int r = 0; r < 2; ++r)
#pragma unroll
      for (int e = 0; e < 2; ++e) f(j, r, e, element_at(j, r, e));
}

// The labels of one sequence's head.
class LabelsOfHead {
 public:
  __device__ LabelsOfHead(const LabelsView& view, std::int32_t sequence, std::int32_t head)
      : view_(view), sequence_(sequence), head_(head) {
    if (!by_group()) return;
    const std::int64_t input = view.shares.input(sequence);
    query_groups_ = view.query_groups + input * view.queries;
    key_groups_ = view.key_groups + input * view.keys;
  }

  __device__ bool some() const { return view_.products != nullptr; }
  __device__ bool by_group() const { return view_.key_groups != nullptr; }
  __device__ std::int32_t clip() const { return view_.clip; }
  __device__ std::int32_t queries() const { return view_.queries; }
  __device__ std::int32_t query_group(std::int32_t query) const {
    return by_group() ? query_groups_[min(query, view_.queries - 1)] : 0;
  }
  __device__ std::int32_t key_group(std::int32_t key) const {
    return by_group() ? __ldg(key_groups_ + min(key, view_.keys - 1)) : 0;
  }
  // A query's numbers; the last query's beyond.
  __device__ const float* products(std::int32_t query) const {
    return view_.products + row_of(view_.shares.input(sequence_), min(query, view_.queries - 1));
  }
  __device__ float* sums(std::int32_t query) const { return view_.sums + row_of(sequence_, query); }
  // That of the first label or of the last.
  __device__ float product(std::int32_t query, int which) const {
    return some() ? products(query)[which * (view_.count - 1)] : 0.0f;
  }
  __device__ std::int32_t count() const { return view_.count; }

  // Distances from `least` to `most` of a warp's pairs.
  __device__ int which_of(std::int32_t least, std::int32_t most) const {
    return most <= -view_.clip ? 0 : least >= view_.clip ? 1 : TileLabels::mixed;
  }

  // dq += the sums' product with the table, of a warp's 16 queries; the thread's first is `query`. In 16 bits, as dS.
  template <class T, int KeySize>
  __device__ void add_table(float (&dq)[KeySize / 2], std::int32_t query) const {
    const auto* const table =
        static_cast<const std::uint16_t*>(view_.table) + static_cast<std::int64_t>(head_) * view_.table_head;
    const std::int32_t lane_label = 2 * (this_lane() % 4), lane_column = this_lane() / 4;
    for (std::int32_t first = 0; first < view_.count; first += 16) {
      std::uint32_t a[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const std::int32_t label = first + lane_label + i / 2 * 8, row = query + i % 2 * 8;
        const bool there = row < view_.queries;
        a[i] = pack<T>(there && label < view_.count ? sums(row)[label] : 0.0f,
                       there && label + 1 < view_.count ? sums(row)[label + 1] : 0.0f);
      }
      const auto element = [&](std::int32_t label, std::int32_t column) -> std::uint32_t {
        return label < view_.count && column < view_.key_size ? table[label * view_.table_label + column] : 0u;
      };
#pragma unroll
      for (int j = 0; j < KeySize / 8; ++j) {
        std::uint32_t b[2];
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          const std::int32_t label = first + lane_label + half * 8, column = 8 * j + lane_column;
          b[half] = element(label, column) | element(label + 1, column) << 16;
        }
        float d[4] = {dq[4 * j], dq[4 * j + 1], dq[4 * j + 2], dq[4 * j + 3]};
        multiply_add<T>(d, a, b[0], b[1]);
#pragma unroll
        for (int i = 0; i < 4; ++i) dq[4 * j + i] = d[i];
      }
    }
  }

 private:
  __device__ std::int64_t row_of(std::int32_t sequence, std::int32_t query) const {
    return ((static_cast<std::int64_t>(sequence) * view_.heads + head_) * view_.queries + query) * view_.count;
  }

  const LabelsView& view_;
  const std::int32_t *query_groups_ = nullptr, *key_groups_ = nullptr;
  std::int32_t sequence_, head_;
};

// Rows are queries, columns keys: forward and dq.
template <int Keys>
class LabelsOfQueries {
 public:
  // first, warp: the first query of the thread and of its warp.
  __device__ LabelsOfQueries(const LabelsView& view, std::int32_t sequence, std::int32_t head, std::int32_t first,
                             std::int32_t warp)
      : of_(view, sequence, head),
        first_(first),
        warp_(warp),
        group_{of_.query_group(first), of_.query_group(first + 8)},
        groups_(group_) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
#pragma unroll
      for (int which = 0; which < 2; ++which) product_[which][r] = of_.product(first + 8 * r, which);
    }
  }

  // The tile of keys from `key` on.
  __device__ TileLabels look(std::int32_t key) const {
    TileLabels labels;
    if (of_.by_group()) {
      static_assert(Keys == 64);
      labels.which = 1;
      if (!groups_.meets(GroupRange({of_.key_group(key + this_lane()), of_.key_group(key + 32 + this_lane())})))
        return labels;
      const std::int32_t column = key + 2 * (this_lane() % 4);
#pragma unroll
      for (int j = 0; j < Keys / 8; ++j)
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          const std::int32_t group = of_.key_group(column + 8 * j + e);
#pragma unroll
          for (int r = 0; r < 2; ++r) labels.own |= (group == group_[r] ? 1u : 0u) << element_at(j, r, e);
        }
      labels.which = __any_sync(~0u, labels.own != 0) ? TileLabels::mixed : 1;
    } else if (of_.clip() > 0) {
      labels.which = uniform(of_.which_of(key - warp_ - 15, key + Keys - 1 - warp_));
      labels.distance = key + 2 * (this_lane() % 4) - first_;
    }
    return labels;
  }
  // The number that is added to the scores of a row, where the tile has one.
  __device__ float product(int which, int r) const { return which == 0 ? product_[0][r] : product_[1][r]; }

  // Adds to scores of a tile; of one label, or `only_mixed`.
  template <bool OnlyMixed>
  __device__ void add(float (&s)[Keys / 2], const TileLabels& labels) const {
    if (labels.which != TileLabels::mixed) {
      if constexpr (OnlyMixed) return;
      const float x[2] = {product(labels.which, 0), product(labels.which, 1)};
      each_pair<Keys>([&](int, int r, int, int i) { s[i] += x[r]; });
    } else if (of_.by_group()) {
      each_pair<Keys>([&](int, int r, int, int i) { s[i] += labels.own >> i & 1 ? product_[0][r] : product_[1][r]; });
    } else {
      // Without a condition on any read, so that all are in flight at once.
      const std::int32_t clip = of_.clip();
      const float* const row[2] = {of_.products(first_) + clip, of_.products(first_ + 8) + clip};
      each_pair<Keys>([&](int j, int r, int e, int i) {
        s[i] += row[r][min(max(labels.distance + 8 * j + e - 8 * r, -clip), clip)];
      });
    }
  }

  // Sums gradients of scores by label.
  __device__ void add_gradients(const float (&ds)[Keys / 2], const TileLabels& labels) {
    if (labels.which != TileLabels::mixed) {
      float sum[2] = {0, 0};
      each_pair<Keys>([&](int, int r, int, int i) { sum[r] += ds[i]; });
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        sum_[0][r] += labels.which == 0 ? sum[r] : 0.0f;
        sum_[1][r] += labels.which == 0 ? 0.0f : sum[r];
      }
    } else if (of_.by_group()) {
      each_pair<Keys>([&](int, int r, int, int i) {
        const bool own = labels.own >> i & 1;
        sum_[0][r] += own ? ds[i] : 0.0f;
        sum_[1][r] += own ? 0.0f : ds[i];
      });
    } else {
      const std::int32_t clip = of_.clip();
      float* const row[2] = {of_.sums(first_) + clip, of_.sums(first_ + 8) + clip};
      each_pair<Keys>([&](int j, int r, int e, int i) {
        const std::int32_t distance = labels.distance + 8 * j + e - 8 * r;
        const bool behind = distance <= -clip, ahead = distance >= clip;
        sum_[0][r] += behind ? ds[i] : 0.0f;
        sum_[1][r] += ahead ? ds[i] : 0.0f;
        if (!behind && !ahead && ds[i] != 0)  // a pair that is seen, of which there is one
          row[r][distance] = ds[i];
      });
    }
  }
  // Writes the sums, and adds the gradients through the table to those through the keys; both lack the scale.
  template <class T, int KeySize>
  __device__ void finish(float (&dq)[KeySize / 2]) {
    if (!of_.some()) return;
#pragma unroll
    for (int r = 0; r < 2; ++r) {
#pragma unroll
      for (int which = 0; which < 2; ++which) {
        float& sum = sum_[which][r];
        sum += __shfl_xor_sync(~0u, sum, 1);
        sum += __shfl_xor_sync(~0u, sum, 2);
      }
      const std::int32_t query = first_ + 8 * r;
      if (this_lane() % 4 != 0 || query >= of_.queries()) continue;
      of_.sums(query)[0] = of_.count() > 1 ? sum_[0][r] : sum_[0][r] + sum_[1][r];
      if (of_.count() > 1) of_.sums(query)[of_.count() - 1] = sum_[1][r];
    }
    __syncwarp();  // the sums are other lanes'
    of_.add_table<T, KeySize>(dq, first_);
  }

 private:
  LabelsOfHead of_;
  std::int32_t first_, warp_, group_[2];
  GroupRange groups_;
  float product_[2][2], sum_[2][2] = {};
};

// Rows are keys, columns queries: dkdv, whose producer has the queries' numbers in shared memory.
template <int Queries>
class LabelsOfKeys {
 public:
  // first, warp: the first key of the thread and of its warp.
  __device__ LabelsOfKeys(const LabelsView& view, std::int32_t sequence, std::int32_t head, std::int32_t first,
                          std::int32_t warp)
      : of_(view, sequence, head),
        first_(first),
        warp_(warp),
        group_{of_.key_group(first), of_.key_group(first + 8)},
        groups_(group_) {}

  // The tile of queries from `query` on. groups: those of four of sixteen columns from `4 (column / 2)` on.
  __device__ TileLabels look(std::int32_t query, const std::int32_t* groups) const {
    TileLabels labels;
    if (of_.by_group()) {
      static_assert(Queries == 64);
      labels.which = 1;
      if (!groups_.meets(GroupRange({groups[this_lane()], groups[32 + this_lane()]}))) return labels;
#pragma unroll
      for (int j = 0; j < Queries / 8; ++j)
#pragma unroll
        for (int e = 0; e < 2; ++e)
#pragma unroll
          for (int r = 0; r < 2; ++r) {
            const std::int32_t group = groups[16 * (j / 2) + 4 * (this_lane() % 4) + j % 2 * 2 + e];
            labels.own |= (group == group_[r] ? 1u : 0u) << element_at(j, r, e);
          }
      labels.which = __any_sync(~0u, labels.own != 0) ? TileLabels::mixed : 1;
    } else if (of_.clip() > 0) {
      labels.which = uniform(of_.which_of(warp_ - query - Queries + 1, warp_ + 15 - query));
      labels.distance = first_ - query - 2 * (this_lane() % 4);
    }
    return labels;
  }

  // A pair of a mixed tile that begins at `query`: 0, 1, or 2 where the score takes `product` as well.
  struct Pair {
    int which;
    float product;
  };
  __device__ Pair pair(const TileLabels& labels, std::int32_t query, int j, int r, int e, int i) const {
    if (of_.by_group()) return {labels.own >> i & 1 ? 0 : 1, 0.0f};
    const std::int32_t clip = of_.clip(), distance = labels.distance + 8 * r - 8 * j - e;
    return {2, of_.products(query + 8 * j + 2 * (this_lane() % 4) + e)[min(max(distance, -clip), clip) + clip]};
  }

 private:
  LabelsOfHead of_;
  std::int32_t first_, warp_, group_[2];
  GroupRange groups_;
};

// The streamed queries of dkdv, in the order of their lse: their lse with the first label and with the last,
// and groups.
template <int Stages, int Step>
struct LabelColumns {
  alignas(16) float shift[2][Stages][Step];
  alignas(16) std::int32_t group[Stages][Step];
};

struct LabelsTerm {
  static constexpr bool given = true;
};

}  // namespace longstride::kernels::cuda::sm90
