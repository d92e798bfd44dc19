// Which shapes of attention with a distance term the kernels for Hopper take. Needs no GPU and no CUDA: `plan` asks
// before anything runs. The portable kernels compute the same for all others.
#pragma once
#include <algorithm>
#include <cstdint>

#include "kernels/distance_attention/distance_attention.h"

namespace longstride::kernels {

// Elements of a head, of keys or of values. Rows must also be whole multiples of 16 bytes.
inline bool is_hopper_size(std::int64_t size) { return size > 32 && size <= 64; }

// Whether every distance of a pair has a row of its own in a table of `rows` rows. `window` as in DistanceScores.
inline bool has_row_for_every_distance(std::int64_t rows, std::int64_t n_k, std::int64_t window, std::int64_t step) {
  const std::int64_t entries = n_k / step, most = window > 0 ? std::min(window, entries) : entries;
  return (most - 1) * step < rows;
}

enum class DistanceSlowness : std::uint8_t {
  none,
  head_size,  // no multiple of 8 from 40 to 64
  dropout,    // of probabilities
  dilation,   // that does not divide the numbers of queries and keys
  table       // whose last row stands for several distances
};

// What keeps a call from the kernels for Hopper, its value, and of a size the nearest ones on either side that do not;
// 0: there is none.
struct DistanceFastPath {
  DistanceSlowness slowness = DistanceSlowness::none;
  std::int64_t value = 0, below = 0, above = 0;
};
// Tensors need no data, and `span` is not read.
DistanceFastPath fast_path_of(const DistanceScores& scores, std::int64_t value_size);

}  // namespace longstride::kernels
