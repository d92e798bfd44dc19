// What a launch of the band kernel takes, by value, in its parameters.
#pragma once
#include <algorithm>
#include <cstdint>

#include "kernels/attention/attention.h"
#include "kernels/attention/sm90/backward_problem.h"
#include "kernels/attention/sm90/tensor_map.h"

namespace longstride::kernels::cuda::sm90 {

inline constexpr int band_rows = 64;  // of a tile

// Which queries see a key where queries and keys are one stream, in its entries: key t is seen by [t, beyond(t)).
struct BandShape {
  std::int32_t window = 0, block = 0;  // block > 0: up to the end of t's block; else the window from t on

  constexpr std::int32_t beyond(std::int32_t t) const { return block > 0 ? (t / block + 1) * block : t + window; }
  // The first key that query t sees.
  constexpr std::int32_t low(std::int32_t t) const {
    if (block > 0) return t / block * block;
    return t >= window ? t - window + 1 : 0;
  }
  // Past the last query tile of key tile `tile` in a stream of this length.
  constexpr std::int32_t end_tile(std::int32_t tile, std::int32_t length) const {
    const std::int32_t last = tile * band_rows + band_rows < length ? tile * band_rows + band_rows : length;
    const std::int32_t end = beyond(last - 1) < length ? beyond(last - 1) : length;
    return (end + band_rows - 1) / band_rows;
  }
};

struct BandProblem {
  StreamMaps q, k, v, o, dout;
  Stream stream;  // of segment 0, queries and keys alike
  BandShape shape;
  std::int32_t n, segments, heads;
  std::int32_t reach;                  // most query tiles that see a key tile
  std::int32_t slots;                  // query tiles in shared memory
  std::int32_t key_stages, ds_stages;  // 1 or 2
  std::int32_t run;                    // tiles that a block owns
  float scale;
  const float* lse;
  Gradient output;  // o, read
  Gradient dq, dk, dv;
};

}  // namespace longstride::kernels::cuda::sm90
