// One pair of entries under the distance term, read from global memory, for products in f32.
#pragma once
#include "kernels/attention/term/distance.cuh"
#include "kernels/base/vector.cuh"

namespace longstride::kernels::cuda::portable {

// Query entries count from the class's first query.
template <>
class PairsOf<DistanceTerm> {
 public:
  __device__ explicit PairsOf(const DistanceTerm& term) : term_(term), step_now_(of().kept.step_word()) {}

  // (q + v) T^T, without the scale.
  __device__ float score(std::int32_t query, std::int32_t key, std::int32_t) const {
    if (of().table == nullptr) return 0;
    const float *q = position(query), *t = table_row(query, key);
    float sum = 0;
    for (int d = 0; d < of().size; ++d) sum = fmaf(q[d], t[d], sum);
    return sum;
  }
  __device__ float weight(std::int32_t query, std::int32_t key) const {
    return term_.head.ramp.weight(apart(query, key) * term_.head.step);
  }
  __device__ float keep(std::int32_t query, std::int32_t key) const {
    if (of().kept.limit == 0) return 1;
    const std::int32_t i = query < term_.queries.length ? term_.queries.position(query) : 0;
    const std::uint64_t row = of().kept.row(term_.head.sequence, term_.head.head, i);
    return of().kept.keeps(row, term_.in.position(key), step_now_) ? of().keep_scale : 0.0f;
  }
  // Adds ds times the table's row to this lane's columns of a row of dq.
  __device__ void add_gradient(float (&d)[plain_vectors], float ds, std::int32_t query, std::int32_t key) const {
    if (of().table == nullptr || ds == 0) return;
    const float* t = table_row(query, key);
#pragma unroll
    for (int x = 0; x < plain_vectors; ++x) {
      const int column = x * warp_threads + this_lane();
      if (column < of().size) d[x] = fmaf(ds, t[column], d[x]);
    }
  }

  // As DistanceTiles::finish, of a warp's rows; `sums` has room for 4 (2 size + 1).
  template <int Rows>
  __device__ void finish(float (&by_content)[Rows][plain_vectors], const float (&by_position)[Rows][plain_vectors],
                         float span, float* sums) const {
    const int size = of().size, width = 2 * size + 1;
    float* const own = sums + this_warp() * width;
#pragma unroll
    for (int x = 0; x < plain_vectors; ++x) {
      const int column = x * warp_threads + this_lane();
      float content = 0, position = 0;
#pragma unroll
      for (int r = 0; r < Rows; ++r) {
        content += by_content[r][x];
        position += by_position[r][x];
        by_content[r][x] += by_position[r][x];
      }
      if (column >= size) continue;
      own[column] = content * of().scale;
      own[size + column] = position * of().scale;
    }
    span = warp_sum(span);
    if (this_lane() == 0) own[2 * size] = of().span != nullptr ? span * (of().longest_span / of().ramp) : 0.0f;
    __syncthreads();
    for (int x = this_thread(); x < width; x += block_threads)
      term_.sums()[x] = sums[x] + sums[x + width] + sums[x + 2 * width] + sums[x + 3 * width];
  }

 private:
  __device__ const distance::Call& of() const { return term_.call.of; }
  __device__ std::int32_t apart(std::int32_t query, std::int32_t key) const {
    return term_.in.first_query + query - key;
  }
  __device__ const float* position(std::int32_t query) const {
    return distance::row_of<const float>(of().position, term_.head, term_.queries.position(query));
  }
  __device__ const float* table_row(std::int32_t query, std::int32_t key) const {
    return distance::distance_row<float>(of(), term_.head, apart(query, key));
  }

  const DistanceTerm& term_;
  std::uint32_t step_now_;
};

}  // namespace longstride::kernels::cuda::portable
