// The parameters of a band's backward kernel, passed by value.
#pragma once
#include <cstdint>

#include "kernels/attention/sm90/band/band_shape.h"
#include "kernels/attention/sm90/general/backward_problem.h"
#include "kernels/attention/sm90/row_maps.h"

namespace longstride::kernels::cuda::sm90 {

struct BandBackwardProblem {
  RowMaps q, k, v, o, dout;
  RowSet set;  // class 0, queries and keys alike
  BandShape shape;
  std::int32_t n, classes, heads;
  std::int32_t reach;                  // most query tiles that see a key tile
  std::int32_t slots;                  // query tiles in shared memory
  std::int32_t key_stages, ds_stages;  // 1 or 2
  std::int32_t run;                    // tiles per block
  float scale;
  const float* lse;
  Gradient output;  // o, read
  Gradient dq, dk, dv;
  Divisor heads_per_key;  // query heads that read one head of k and v; 1 in the kernels of narrow bands
};

// A block's share of one class.
struct BandBackwardTask {
  std::int32_t head, residue, sequence;
  std::int32_t begin, end;  // tiles
  std::int32_t length;      // entries of the class's row set
  std::int32_t base, step;  // entry t is at base + t * step

  constexpr std::int64_t position(std::int32_t entry) const { return base + static_cast<std::int64_t>(entry) * step; }
};

}  // namespace longstride::kernels::cuda::sm90
