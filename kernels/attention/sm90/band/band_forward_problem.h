// The parameters of the band's forward kernel, passed by value.
#pragma once
#include <cstdint>

#include "kernels/attention/pattern/row_bounds.h"
#include "kernels/attention/sm90/band/band_shape.h"
#include "kernels/attention/sm90/general/pass_shape.h"
#include "kernels/attention/sm90/row_maps.h"

namespace longstride::kernels::cuda::sm90 {

// BandShape without divisions.
struct BandLimit {
  std::int32_t window = 0, block = 0;
  Divisor by_block;

  BandLimit() = default;
  explicit BandLimit(const BandShape& shape)
      : window(shape.window), block(shape.block), by_block(shape.block > 0 ? shape.block : 1) {}
#ifdef __CUDACC__
  // The first key that query t sees; the last is t.
  __device__ std::int32_t low(std::int32_t t) const {
    return block > 0 ? by_block.quotient(t) * block : max(t - window + 1, 0);
  }
#endif
};

struct BandForwardProblem {
  RowMaps q, k, v;  // boxes of band_rows rows
  RowMaps o;        // boxes of the rows of a warp
  RowSet set;       // class 0, queries and keys alike
  BandLimit limit;
  std::int32_t n, classes;
  std::int32_t stages;      // key and value tiles in a ring
  std::int32_t run, chain;  // a task has `run` tiles of each of `chain` classes: all tiles of several, or one's run
  Divisor by_heads, by_chains, by_period;
  Divisor heads_per_key;  // query heads that read one head of k and v
  float rate;             // scale * log2(e)
  float* lse;
  const float* sink;  // (heads); null: none
  BoundsView bounds;  // documents, where there is one class
};

}  // namespace longstride::kernels::cuda::sm90
