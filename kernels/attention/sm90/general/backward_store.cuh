// Stores accumulators in rows of a gradient. A thread holds pairs of columns of two rows (fragment.cuh); the four
// threads of a quad exchange theirs so that each writes 16 bytes.
#pragma once
#include <cstdint>

#include "kernels/attention/sm90/general/backward_tiles.cuh"
#include "kernels/base/approximate.cuh"
#include "kernels/base/cuda_types.cuh"
#include "kernels/gpu/fragment.cuh"
#include "kernels/gpu/lane.cuh"

namespace longstride::kernels::cuda::sm90 {

// factor * values of a share, in parts (sequences of all shares, rows, heads, Size).
template <int Size>
__device__ inline void store_share(float* parts, std::int32_t rows, std::int32_t heads, const BackwardTask& task,
                                   const float (&values)[Size / 2], float factor) {
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const std::int32_t entry =
        task.begin + static_cast<std::int32_t>(threadIdx.x / 32 * 16 + threadIdx.x % 32 / 4) + 8 * r;
    if (entry >= task.own.length) continue;
    float* const row = parts + ((static_cast<std::int64_t>(task.sequence) * rows + entry) * heads + task.head) * Size;
#pragma unroll
    for (int j = 0; j < Size / 8; ++j)
      *reinterpret_cast<float2*>(row + 8 * j + threadIdx.x % 4 * 2) =
          float2{values[element_at(j, r)] * factor, values[element_at(j, r, 1)] * factor};
  }
}

// gradient = factor * values, or += when `adds`. Called by all threads of a warpgroup.
template <class T, int Size>
__device__ inline void store_gradient(const Gradient& gradient, const BackwardTask& task,
                                      const float (&values)[Size / 2], float factor, bool adds) {
  T* const base = static_cast<T*>(gradient.data) + task.sequence * gradient.stride[0] + task.head * gradient.stride[2];
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const std::int32_t entry =
        task.begin + static_cast<std::int32_t>(threadIdx.x / 32 * 16 + threadIdx.x % 32 / 4) + 8 * r;
    const bool there = entry < task.own.length;
    T* const row = base + (there ? position_at(task.own, entry) : 0) * gradient.stride[1];
#pragma unroll
    for (int g = 0; g < Size / 32; ++g) {
      const std::int32_t column = 32 * g + static_cast<std::int32_t>(threadIdx.x % 4) * 8;
      const bool written = there && column < gradient.size;
      uint4* const to = reinterpret_cast<uint4*>(row + column);
      std::uint32_t v[4] = {};
      if (adds) {
        if (written) {
          const uint4 old = *to;
          v[0] = old.x;
          v[1] = old.y;
          v[2] = old.z;
          v[3] = old.w;
        }
        transpose_quad(v);
      }
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float* d = values + element_at(4 * g + i, r);
        const float2 old = unpack<T>(v[i]);
        v[i] = pack<T>(fmaf(d[0], factor, old.x), fmaf(d[1], factor, old.y));
      }
      transpose_quad(v);
      if (written) *to = {v[0], v[1], v[2], v[3]};
    }
  }
}

}  // namespace longstride::kernels::cuda::sm90
