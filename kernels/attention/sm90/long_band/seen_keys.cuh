// The queries that see a warp's keys, two a thread, where no closed form of the tile says it: an interval for each key.
#pragma once
#include <cstdint>

#include "kernels/attention/sm90/band/band_shape.h"
#include "kernels/base/approximate.cuh"

namespace longstride::kernels::cuda::sm90 {

// A key is seen by the task's queries from `begin` to before `end`.
struct SeenKeys {
  static constexpr std::int32_t none = INT32_MAX;
  std::int32_t begin[2], end[2];       // the thread's keys
  std::int32_t last_begin, first_end;  // the warp's

  __device__ void share() {
    last_begin = __reduce_max_sync(~0u, max(begin[0], begin[1]));
    first_end = __reduce_min_sync(~0u, min(end[0], end[1]));
  }
  // Turns S into P, and P into the product's operand, for the query tile that begins there.
  template <class Kernel, int Count>
  __device__ void weigh(const Kernel& kernel, float (&s)[Count], std::uint32_t (&weights)[4][4], std::int32_t query,
                        const typename Kernel::Statistics& of) const {
    if (last_begin > query || first_end < query + band_rows) {
      const int column = query + 2 * (kernel.lane % 4);
#pragma unroll
      for (int i = 0; i < Count; ++i) {
        const int at = i / 4 * 8 + i % 2, r = i / 2 % 2;
        if (at < begin[r] - column || at >= end[r] - column) s[i] = -__builtin_huge_valf();
      }
    }
    kernel.template weigh_and_pack<true>(s, weights, kernel.problem.scale * log2_e, of, {}, query);
  }
};

}  // namespace longstride::kernels::cuda::sm90
