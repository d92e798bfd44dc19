// Shared by decoding kernels: rows of a call, and the online softmax of one query, of whose keys every warp has some.
#pragma once
#include <cstdint>

#include "kernels/base/cuda_types.cuh"
#include "kernels/base/tensor.h"
#include "kernels/gpu/lane.cuh"

namespace longstride::kernels::cuda {

inline constexpr int decode_dims = 4;  // elements of a row per lane: sizes up to 128

template <class T>
struct StridedRows {
  T* data;
  std::int64_t batch, row, head;  // strides
  int size;

  explicit StridedRows(const Tensor& v)
      : data(v.as<T>()), batch(v.stride(0)), row(v.stride(1)), head(v.stride(2)), size(static_cast<int>(v.size(3))) {}
  __device__ T* at(std::int64_t b, std::int64_t r, std::int64_t h) const {
    return data + b * batch + r * row + h * head;
  }
};

__device__ __forceinline__ std::int64_t either(std::int64_t host, const std::int64_t* device) {
  return device != nullptr ? *device : host;
}

// Every lane has `decode_dims` elements of the sum of values.
struct RunningSoftmax {
  float sum[decode_dims] = {}, top = -INFINITY, total = 0;

  // Before keys whose largest score is `most`, at least `top`.
  __device__ __forceinline__ void rise(float most) {
    const float shrink = top == most ? 1.0f : expf(top - most);  // also while both are -infinity
    top = most;
    total *= shrink;
#pragma unroll
    for (int e = 0; e < decode_dims; ++e) sum[e] *= shrink;
  }
  template <class T>
  __device__ __forceinline__ void add(float weight, const T* value, int size) {
    total += weight;
#pragma unroll
    for (int e = 0; e < decode_dims; ++e)
      if (e * warp_threads + this_lane() < size) sum[e] += weight * to_float(value[e * warp_threads + this_lane()]);
  }
};

// Merges the results of a block's warps, in order, with a sink's logit, and writes o: 0 where there was no key.
template <int Warps, class T>
__device__ void merge_warps(const RunningSoftmax& mine, float sink, T* o, int size) {
  constexpr int columns = warp_threads * decode_dims;
  __shared__ float of_warp[Warps][columns + 2];
  for (int e = 0; e < decode_dims; ++e) of_warp[this_warp()][e * warp_threads + this_lane()] = mine.sum[e];
  if (this_lane() == 0) {
    of_warp[this_warp()][columns] = mine.top;
    of_warp[this_warp()][columns + 1] = mine.total;
  }
  __syncthreads();
  float top = sink;
  for (int w = 0; w < Warps; ++w) top = fmaxf(top, of_warp[w][columns]);
  float total = top > -INFINITY ? expf(sink - top) : 0.0f;
  for (int w = 0; w < Warps; ++w)
    if (of_warp[w][columns + 1] > 0) total += expf(of_warp[w][columns] - top) * of_warp[w][columns + 1];
  for (int d = this_thread(); d < size; d += Warps * warp_threads) {
    float out = 0;
    for (int w = 0; w < Warps; ++w)
      if (of_warp[w][columns + 1] > 0) out += expf(of_warp[w][columns] - top) * of_warp[w][d];
    o[d] = from_float<T>(total > 0 ? out / total : 0.0f);
  }
}

}  // namespace longstride::kernels::cuda
