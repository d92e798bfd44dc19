// The masks of kernels/dropout/dropout.h on the GPU, equal to the CPU's element for element.
#pragma once
#include <cmath>

#include "kernels/base/philox.h"
#include "kernels/dropout/dropout.h"

namespace longstride::kernels::cuda {

struct DropoutMask {
  std::uint32_t key[philox_rounds][2] = {};  // keys of every round, from the seed: reading parameters is free
  std::uint32_t domain = 0;
  std::uint32_t limit = 0;  // words below it drop; 0: nothing is dropped or drawn
  float scale = 1;
  const std::int64_t* step = nullptr;
  std::int64_t first_element = 0;

  DropoutMask() = default;
  explicit DropoutMask(const DropoutArgs& args)
      : domain(domain_of(Purpose::dropout, args.layer)), step(args.step), first_element(args.first_element) {
    if (args.p <= 0) return;
    limit = static_cast<std::uint32_t>(std::ceil(static_cast<double>(args.p) * 4294967296.0));
    scale = 1.0f / (1.0f - args.p);
    for (std::uint32_t round = 0; round < philox_rounds; ++round) {
      key[round][0] = static_cast<std::uint32_t>(args.seed) + round * philox_step0;
      key[round][1] = static_cast<std::uint32_t>(args.seed >> 32) + round * philox_step1;
    }
  }

  __device__ std::uint32_t step_word() const { return limit > 0 ? static_cast<std::uint32_t>(*step) : 0; }

  // Which of elements [4 group, 4 group + 4) of the global batch are kept; requires limit > 0.
  __device__ __forceinline__ void draw(std::int64_t group, std::uint32_t step_now, bool (&kept)[4]) const {
    std::uint32_t c[4] = {static_cast<std::uint32_t>(group), static_cast<std::uint32_t>(group >> 32), step_now, domain};
#pragma unroll
    for (int round = 0; round < philox_rounds; ++round) philox_round(c, key[round][0], key[round][1]);
#pragma unroll
    for (int k = 0; k < 4; ++k) kept[k] = c[k] >= limit;
  }
  // The same for any limit.
  __device__ __forceinline__ void keep(std::int64_t group, std::uint32_t step_now, bool (&kept)[4]) const {
#pragma unroll
    for (int k = 0; k < 4; ++k) kept[k] = true;
    if (limit > 0) draw(group, step_now, kept);
  }
  __device__ bool keeps(std::int64_t element, std::uint32_t step_now) const {
    bool kept[4];
    keep(element / 4, step_now, kept);
    const int k = static_cast<int>(element % 4);
    return k == 0 ? kept[0] : k == 1 ? kept[1] : k == 2 ? kept[2] : kept[3];
  }
};

// residual + dropped branch. Rounds only once, wherever it is computed; a dropped infinity does not contribute.
__device__ __forceinline__ float add_dropped(float residual, float branch, bool kept, float scale) {
  return kept ? fmaf(branch, scale, residual) : residual;
}
__device__ __forceinline__ float dropped(float branch, bool kept, float scale) { return kept ? branch * scale : 0.0f; }

}  // namespace longstride::kernels::cuda
