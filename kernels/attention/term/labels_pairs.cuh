// The term of labels for one pair of entries, for products in f32.
#pragma once
#include "kernels/attention/term/labels.cuh"
#include "kernels/base/vector.cuh"

namespace longstride::kernels::cuda::portable {

template <>
class PairsOf<LabelsTerm> {
 public:
  __device__ explicit PairsOf(const LabelsTerm& term) : term_(term) {}

  // The product of a query and a label's vector, without the scale. The query sees the key.
  __device__ float score(std::int32_t query, std::int32_t key, std::int32_t part) const {
    return term_.row_of(term_.queries.position(query))[label(query, key, part)];
  }
  // Sums a warp's ds of one query by label: one label after the other.
  __device__ void add_gradients(float ds, std::int32_t query, std::int32_t key, std::int32_t part) const {
    const std::int32_t own = ds == 0 ? -1 : label(query, key, part);
    for (std::int32_t last = -1;;) {
      const std::int32_t next = warp_min(own > last ? own : INT_MAX);
      if (next == INT_MAX) return;
      const float sum = warp_sum(own == next ? ds : 0.0f);
      if (this_lane() == 0) term_.sums_of(term_.queries.position(query))[next] += sum;
      last = next;
    }
  }
  // Adds the gradients through the table to a warp's rows of dq from an entry on; both lack the scale.
  template <int Rows>
  __device__ void finish(float (&dq)[Rows][plain_vectors], std::int32_t first) const {
    const LabelsCall& call = term_.labels;
    __syncwarp();  // the sums are lane 0's
#pragma unroll
    for (int r = 0; r < Rows; ++r) {
      if (first + r >= term_.queries.length) return;
      const float* const sums = term_.sums_of(term_.queries.position(first + r));
      const float* vector = static_cast<const float*>(call.table) + term_.unit.head * call.table_head;
      for (std::int32_t label = 0; label < call.count; ++label, vector += call.table_label)
#pragma unroll
        for (int x = 0; x < plain_vectors; ++x) {
          const int column = x * warp_threads + this_lane();
          if (column < call.key_size) dq[r][x] = fmaf(sums[label], vector[column], dq[r][x]);
        }
    }
  }

 private:
  __device__ std::int32_t label(std::int32_t query, std::int32_t key, std::int32_t part) const {
    const auto seen = term_.seen(part);
    const std::int32_t i = term_.queries.position(query);
    return term_.rule.label(i, seen.keys.position(key), term_.rule.from_end ? seen.interval(i).end - 1 - key : 0);
  }

  const LabelsTerm& term_;
};

}  // namespace longstride::kernels::cuda::portable
