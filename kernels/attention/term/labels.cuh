// The term of labels (labels.h) in the portable kernels. The products of all queries and the table are made before
// them, so a score adds one number of its query's row. dq sums the gradients of scores by label, of its own queries.
#pragma once
#include <climits>

#include "kernels/attention/portable/products.cuh"
#include "kernels/attention/term/none.cuh"

namespace longstride::kernels::cuda::portable {

struct LabelsTerm : ListedTerm {
  using Call = LabelsCall;
  static constexpr bool given = true, few_sizes = true;

  const LabelsCall& labels;
  LabelRule rule;
  const float* products;  // like the sums (n_q, labels), of one sequence and head
  float* sums;

  __device__ LabelsTerm(const LabelsCall& c, Side side, std::int32_t rows)
      : ListedTerm(c, side, rows), labels(c), rule(c.rule) {
    const std::int64_t first = lse_row(c, unit) * c.count;
    products = c.products + first;
    sums = c.sums + first;
    if (rule.key_groups == nullptr) return;
    rule.query_groups += static_cast<std::int64_t>(unit.batch) * c.n_q;
    rule.key_groups += static_cast<std::int64_t>(unit.batch) * c.n_k;
  }
  // The position of an entry of a row set, or of its last.
  __device__ static std::int32_t position(const EntryPositions& positions, std::int32_t entry) {
    return positions.at(min(entry, positions.set.length - 1));
  }
  __device__ const float* row_of(std::int32_t query) const {
    return products + static_cast<std::int64_t>(query) * labels.count;
  }
  __device__ float* sums_of(std::int32_t query) const { return sums + static_cast<std::int64_t>(query) * labels.count; }
};

__device__ inline std::int32_t warp_min(std::int32_t x) {
  for (int offset = 1; offset < warp_threads; offset *= 2) x = min(x, __shfl_xor_sync(0xFFFFFFFFu, x, offset));
  return x;
}

// With products by tensor cores, where a lane has two rows of a warp's scores (fragment.cuh).
template <class T, int Key, int Queries>
class LabelTiles {
 public:
  static constexpr int elements = 0;

  __device__ LabelTiles(const LabelsTerm& term, T*) : term_(term) {}
  __device__ void load_queries(std::int32_t, int) const {}
  __device__ void load_piece(std::int32_t, std::int32_t, int) const {}
  __device__ bool reads_ends() const { return term_.rule.from_end; }

  // The warp's rows begin at the entry `first`.
  __device__ void add_scores(float (&s)[8][4], const Step& step, std::int32_t first, const TwoIntervals& seen) const {
    const EntryPositions queries(term_.queries);
    const float* row[2];
#pragma unroll
    for (int upper = 0; upper < 2; ++upper)
      row[upper] = term_.row_of(term_.position(queries, first + this_lane() / 4 + 8 * upper));
    each_label(step, first, seen, [&](int j, int e, std::int32_t label) { s[j][e] += row[e / 2][label]; });
  }

  // Sums dS by label: one label of the warp's after the other.
  __device__ void add_gradients(const float (&ds)[8][4], const Step& step, std::int32_t first,
                                const TwoIntervals& seen) const {
    const EntryPositions queries(term_.queries);
    std::int32_t labels[8][4];
    each_label(step, first, seen, [&](int j, int e, std::int32_t label) { labels[j][e] = ds[j][e] == 0 ? -1 : label; });
    for (std::int32_t last = -1;;) {
      std::int32_t next = INT_MAX;
      float sum[2] = {0, 0};
      each_element([&](int j, int e) { next = labels[j][e] > last ? min(next, labels[j][e]) : next; });
      next = warp_min(next);
      if (next == INT_MAX) return;
      each_element([&](int j, int e) { sum[e / 2] += labels[j][e] == next ? ds[j][e] : 0.0f; });
#pragma unroll
      for (int upper = 0; upper < 2; ++upper) {
        sum[upper] += __shfl_xor_sync(0xFFFFFFFFu, sum[upper], 1);
        sum[upper] += __shfl_xor_sync(0xFFFFFFFFu, sum[upper], 2);
        const std::int32_t entry = first + this_lane() / 4 + 8 * upper;
        if (this_lane() % 4 == 0 && entry < term_.queries.length) term_.sums_of(queries.at(entry))[next] += sum[upper];
      }
      last = next;
    }
  }
  // Adds the gradients through the table to dq through the keys; both lack the scale.
  __device__ void finish(float (&dq)[Key / 8][4], std::int32_t first) const {
    const EntryPositions queries(term_.queries);
    const LabelsCall& call = term_.labels;
    const T* vector = static_cast<const T*>(call.table) + term_.unit.head * call.table_head;
    __syncwarp();  // the sums are other lanes'
    for (std::int32_t label = 0; label < call.count; ++label, vector += call.table_label) {
      float sum[2];
#pragma unroll
      for (int upper = 0; upper < 2; ++upper)
        sum[upper] = term_.sums_of(term_.position(queries, first + this_lane() / 4 + 8 * upper))[label];
#pragma unroll
      for (int j = 0; j < Key / 8; ++j)
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          const int column = 8 * j + this_lane() % 4 * 2 + e % 2;
          if (column < call.key_size) dq[j][e] = fmaf(sum[e / 2], to_float(vector[column]), dq[j][e]);
        }
    }
  }

  // Transposed scores: rows are the keys from the entry `keys`, columns the queries from `first`. ends: of their
  // intervals, if they are read.
  __device__ void add_transposed(float (&s)[Queries / 8][4], std::int32_t keys, std::int32_t first,
                                 const std::int32_t* ends) const {
    const EntryPositions queries(term_.queries), of_keys(term_.seen(0).keys);
#pragma unroll
    for (int j = 0; j < Queries / 8; ++j)
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const int column = 8 * j + this_lane() % 4 * 2 + e % 2;
        const std::int32_t entry = keys + this_lane() / 4 + e / 2 * 8, query = term_.position(queries, first + column);
        const std::int32_t after = reads_ends() ? ends[column] - 1 - entry : 0;
        s[j][e] += term_.row_of(query)[term_.rule.label(query, term_.position(of_keys, entry), after)];
      }
  }

 private:
  template <class F>
  __device__ static void each_element(F&& f) {
#pragma unroll
    for (int j = 0; j < 8; ++j)
#pragma unroll
      for (int e = 0; e < 4; ++e) f(j, e);
  }
  // f(j, e, label) of a lane's pairs.
  template <class F>
  __device__ void each_label(const Step& step, std::int32_t first, const TwoIntervals& seen, F&& f) const {
    const EntryPositions queries(term_.queries), keys(term_.seen(step.part).keys);
    std::int32_t query[2];
#pragma unroll
    for (int upper = 0; upper < 2; ++upper) query[upper] = term_.position(queries, first + this_lane() / 4 + 8 * upper);
    each_element([&](int j, int e) {
      const std::int32_t entry = step.begin + 8 * j + this_lane() % 4 * 2 + e % 2;
      f(j, e, term_.rule.label(query[e / 2], term_.position(keys, entry), seen.high[e / 2] - 1 - entry));
    });
  }

  const LabelsTerm& term_;
};

template <class T, int Key, int Queries, int Stages, bool Skew>
struct TilesOf<LabelsTerm, T, Key, Queries, Stages, Skew> {
  using Type = LabelTiles<T, Key, Queries>;
};

}  // namespace longstride::kernels::cuda::portable
