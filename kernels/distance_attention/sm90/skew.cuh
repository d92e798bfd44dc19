// The skew in registers. A warpgroup's products of 64 queries with the 128 rows of T of a window, two accumulators of
// 64 columns, hold the pair (r, c) of a query and a key in row r, column y = r - c + 63; the accumulator of scores
// holds it in column c. A warp w's 16 rows need the columns [16 w, 16 w + 80). In terms of its rows and columns from 16
// w on, c = r + 63 - y and y = r + 63 - c are the same mirror image, so one exchange serves both directions.
//
// Row r of an accumulator is in four lanes (fragment.cuh), and so is row r of its image, so the exchange is shuffles
// among these four: with R = r + 63 - e for r < 8, element e of lane q of image block j is element R mod 2 of lane
// (R / 2 - q) mod 4 of block 8 - j or 7 - j (r < 8), or of the blocks after these (8 <= r < 16).
#pragma once
#include <cstdint>

#include "kernels/gpu/fragment.cuh"
#include "kernels/gpu/lane.cuh"

namespace longstride::kernels::cuda::distance::hopper {

class Skew {
 public:
  __device__ Skew() {
    const int r = this_lane() / 4, q = this_lane() % 4;
    swapped_ = r % 2 == 0;
#pragma unroll
    for (int e = 0; e < 2; ++e) {
      const int sum = r + 63 - e, partner = (sum / 2 - q) & 3;  // gives to the lane that it takes from
      from_[e] = 4 * r + partner;
      later_[e] = sum - 2 * partner >= 64;
    }
  }

  // s = scores of the window's products, or, if `Adds`, s += them: `near` its first 64 rows of T and `far` the others.
  // `warp`: in the warpgroup.
  template <bool Adds = false>
  __device__ void gather(float (&s)[32], const float (&near)[32], const float (&far)[32], int warp) const {
    switch (warp) {
      case 0:
        return gather_of<Adds, 0>(s, near, far);
      case 1:
        return gather_of<Adds, 1>(s, near, far);
      case 2:
        return gather_of<Adds, 2>(s, near, far);
      default:
        return gather_of<Adds, 3>(s, near, far);
    }
  }

  // The reverse for gradients of scores, which are 16 bits as left operands: near = those of the first 64 rows, and
  // those of the others are added to what `far` has, of which they share no element.
  __device__ void scatter(const std::uint32_t (&ds)[4][4], std::uint32_t (&near)[4][4], std::uint32_t (&far)[4][4],
                          int warp) const {
    switch (warp) {
      case 0:
        return scatter_of<0>(ds, near, far);
      case 1:
        return scatter_of<1>(ds, near, far);
      case 2:
        return scatter_of<2>(ds, near, far);
      default:
        return scatter_of<3>(ds, near, far);
    }
  }

 private:
  // What this lane gives for element e = 0 (first) and 1 (second) of its partners, by block.
  struct Pair {
    float first, second;
  };
  __device__ Pair pair(float even, float odd) const { return {swapped_ ? odd : even, swapped_ ? even : odd}; }
  __device__ float take(int e, float later, float earlier) const {
    return __shfl_sync(~0u, later_[e] ? later : earlier, from_[e]);
  }

  template <bool Adds, int Warp>
  __device__ void gather_of(float (&s)[32], const float (&near)[32], const float (&far)[32]) const {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const auto block = [&](int k) {
        const int at = 2 * Warp + h + k;
        return at < 8 ? pair(near[element_at(at, h, 0)], near[element_at(at, h, 1)])
                      : pair(far[element_at(at - 8, h, 0)], far[element_at(at - 8, h, 1)]);
      };
      Pair later = block(8);
#pragma unroll
      for (int j = 0; j < 8; ++j) {
        const Pair earlier = block(7 - j);
        const float taken[2] = {take(0, later.first, earlier.first), take(1, later.second, earlier.second)};
#pragma unroll
        for (int e = 0; e < 2; ++e) s[element_at(j, h, e)] = Adds ? s[element_at(j, h, e)] + taken[e] : taken[e];
        later = earlier;
      }
    }
  }

  // One exchange moves element e of two neighbouring blocks, y and y + 1.
  template <int Warp>
  __device__ void scatter_of(const std::uint32_t (&ds)[4][4], std::uint32_t (&near)[4][4],
                             std::uint32_t (&far)[4][4]) const {
    constexpr std::uint32_t low_halves = 0x5410, high_halves = 0x7632;
#pragma unroll
    for (int at = 0; at < 2 * Warp; ++at) near[at / 2][at % 2 * 2] = near[at / 2][at % 2 * 2 + 1] = 0;
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const auto block = [&](int j) { return j < 0 || j > 7 ? 0u : ds[j / 2][j % 2 * 2 + h]; };
#pragma unroll
      for (int y = 0; y < 10; y += 2) {
        const int at = 2 * Warp + y, j = 8 - y + h;
        std::uint32_t taken[2];
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          const std::uint32_t first = later_[e] ? block(j) : block(j - 1),
                              second = later_[e] ? block(j - 1) : block(j - 2);
          const bool odd = (e == 1) != swapped_;
          taken[e] = __shfl_sync(~0u, __byte_perm(first, second, odd ? high_halves : low_halves), from_[e]);
        }
        const std::uint32_t word = __byte_perm(taken[0], taken[1], low_halves),
                            next = __byte_perm(taken[0], taken[1], high_halves);
        if (at < 8) {
          near[at / 2][h] = word;
          near[at / 2][2 + h] = next;
        } else {
          far[(at - 8) / 2][h] |= word;
          far[(at - 8) / 2][2 + h] |= next;
        }
      }
    }
  }

  int from_[2];
  bool later_[2], swapped_;
};

}  // namespace longstride::kernels::cuda::distance::hopper
