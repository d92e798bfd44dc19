// One head of one sequence, as the CUDA kernels see it.
#pragma once
#include "kernels/distance_attention/gpu/call.h"
#include "kernels/gpu/lane.cuh"

namespace longstride::kernels::cuda::distance {

struct Head {
  std::int32_t sequence, head, step, origin, first_key;
  Ramp<float> ramp;
  Reach reach;

  __device__ Head(const Call& call, std::int32_t sequence_, std::int32_t head_)
      : sequence(sequence_), head(head_), step(call.step[head_]), origin(origin_of(call.n_q, call.n_k, step)) {
    first_key = call.first_key != nullptr ? min(max(call.first_key[sequence], 0), call.n_k) : 0;
    if (call.span != nullptr) ramp = {call.span[head], call.longest_span, call.ramp};
    reach = reach_of(call.n_k, call.window, call.self, step, ramp);
  }

  __device__ std::int64_t row(const Call& call, std::int32_t i) const {
    return (static_cast<std::int64_t>(sequence) * call.heads + head) * call.n_q + i;
  }
};

template <class T>
__device__ inline T* row_of(const HeadMatrix& m, const Head& head, std::int32_t position) {
  return static_cast<T*>(m.data) + head.sequence * m.batch + head.head * m.head + position * m.row;
}
template <class T>
__device__ inline const T* distance_row(const Call& call, const Head& head, std::int32_t m) {
  return static_cast<const T*>(call.table) + head.head * call.table_head +
         table_row(m, head.step, call.distances) * call.table_row;
}

}  // namespace longstride::kernels::cuda::distance
