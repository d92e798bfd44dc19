// The decisions of kernels/dropout.h on the GPU: those of the CPU, element for element.
#pragma once
#include <cmath>

#include "kernels/base/philox.h"
#include "kernels/dropout.h"

namespace longstride::kernels::cuda {

struct DropoutMask {
  std::uint64_t seed = 0;
  std::uint32_t domain = 0;
  std::uint32_t limit = 0;  // words below it drop; 0: nothing is dropped, and nothing drawn
  float scale = 1;
  const std::int64_t* step = nullptr;
  std::int64_t first_element = 0;

  DropoutMask() = default;
  explicit DropoutMask(const DropoutArgs& args)
      : seed(args.seed),
        domain(domain_of(Purpose::dropout, args.layer)),
        step(args.step),
        first_element(args.first_element) {
    if (args.p <= 0) return;
    limit = static_cast<std::uint32_t>(std::ceil(static_cast<double>(args.p) * 4294967296.0));
    scale = 1.0f / (1.0f - args.p);
  }

  __device__ std::uint32_t step_word() const { return limit > 0 ? static_cast<std::uint32_t>(*step) : 0; }

  // What the four elements from `element` of the global batch, a multiple of four, are multiplied by.
  __device__ __forceinline__ void factors(std::int64_t element, std::uint32_t step_now, float (&factor)[4]) const {
    if (limit == 0) {
#pragma unroll
      for (int k = 0; k < 4; ++k) factor[k] = 1;
      return;
    }
    const Philox4 r = philox(seed, static_cast<std::uint64_t>(element) / 4, step_now, domain);
#pragma unroll
    for (int k = 0; k < 4; ++k) factor[k] = r.word[k] < limit ? 0.0f : scale;
  }
  __device__ float factor(std::int64_t element, std::uint32_t step_now) const {
    if (limit == 0) return 1;
    const Philox4 r = philox(seed, static_cast<std::uint64_t>(element) / 4, step_now, domain);
    const int k = static_cast<int>(element % 4);
    const std::uint32_t word = k == 0 ? r.word[0] : k == 1 ? r.word[1] : k == 2 ? r.word[2] : r.word[3];
    return word < limit ? 0.0f : scale;
  }
};

// residual + dropped branch. One rounding, wherever it is computed; a dropped infinity is dropped.
__device__ __forceinline__ float add_dropped(float residual, float branch, float factor) {
  return factor == 0.0f ? residual : fmaf(branch, factor, residual);
}
__device__ __forceinline__ float dropped(float branch, float factor) { return factor == 0.0f ? 0.0f : branch * factor; }

}  // namespace longstride::kernels::cuda
