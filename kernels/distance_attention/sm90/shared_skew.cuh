// The skew of skew.cuh through shared memory, for a kernel whose window moves by one accumulator per step: a window's
// products with the nearer 64 rows of T are those with the farther 64 rows of the next window.
//
// A warp keeps the products of its 16 queries with 128 rows of T. That of query r and row y of a window is at column
// (y - r + 64 turn) mod 128 of the query, turn = 0, 1, 0, ...: so next time the nearer rows are where the farther ones
// are sought, and a score of key c is at a column that is the same for all queries of the warp, (16 warp + 63 - c + 64
// turn) mod 128. In registers it would be at another place in every warp, so code would be there four times.
#pragma once
#include "kernels/gpu/fragment.cuh"
#include "kernels/gpu/lane.cuh"

namespace longstride::kernels::cuda::distance::hopper {

class SharedSkew {
 public:
  static constexpr int columns = 128, pitch = columns + 8;  // pairs of columns then have banks of their own
  static constexpr int warp_bytes = 16 * pitch * 4;

  // `memory`: the warp's, `warp`: its number in the warpgroup.
  __device__ SharedSkew(char* memory, int warp)
      : row_(this_lane() / 4),
        column_(this_lane() % 4 * 2),
        farther_groups_(warp),
        to_(reinterpret_cast<float*>(memory) + row_ * pitch + column_ - row_),
        from_(reinterpret_cast<float*>(memory) + row_ * pitch + 16 * warp + 62 - column_) {}

  // Puts products with the nearer 64 rows.
  __device__ __forceinline__ void put(const float (&near)[32], int turn) const {
    __syncwarp();  // all lanes have read what this overwrites
    float* const to = to_ + 64 * turn;
#pragma unroll
    for (int h = 0; h < 2; ++h)
#pragma unroll
      for (int j = 0; j < 8; ++j)
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          const bool wraps = j < 2 && turn == 0 && 8 * j + e + column_ < row_ + 8 * h;
          to[8 * h * (pitch - 1) + 8 * j + e + (wraps ? columns : 0)] = near[element_at(j, h, e)];
        }
    __syncwarp();
  }
  // s = the window's scores.
  __device__ __forceinline__ void get(float (&s)[32], int turn) const {
#pragma unroll
    for (int group = 0; group < 4; ++group) {  // of 16 keys
      const float* const from = from_ + 64 * turn - (turn != 0 && group < farther_groups_ ? columns : 0);
#pragma unroll
      for (int h = 0; h < 2; ++h)
#pragma unroll
        for (int j = 2 * group; j < 2 * group + 2; ++j) {
          const float2 pair = *reinterpret_cast<const float2*>(from + 8 * h * pitch - 8 * j);
          s[element_at(j, h, 0)] = pair.y;
          s[element_at(j, h, 1)] = pair.x;
        }
    }
  }

 private:
  const int row_, column_;
  const int farther_groups_;  // groups of 16 keys that only read products with the farther rows
  float* const to_;
  const float* const from_;
};

}  // namespace longstride::kernels::cuda::distance::hopper
