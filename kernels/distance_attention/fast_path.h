// Which shapes of attention with a distance term the kernels for Hopper take. Needs no GPU and no CUDA: scratch,
// launches and advice ask here. The portable kernels compute the same for all others.
#pragma once
#include <cstdint>

#include "kernels/distance_attention/distance_attention.h"

namespace longstride::kernels {

enum class DistanceSlowness : std::uint8_t {
  none,
  head_size,  // no multiple of 8 from 40 to 64
  dropout,    // applied to probabilities
  bounds,     // that clamp the keys of a query, as documents do
  dilation,   // that does not divide the numbers of queries and keys
  table       // whose last row stands for several distances
};

// The setting that keeps a call from the kernels for Hopper, its value, and the nearest sizes on either side that do
// not; 0: none.
struct DistanceFastPath {
  DistanceSlowness slowness = DistanceSlowness::none;
  std::int64_t value = 0, below = 0, above = 0;
};
// Tensors need no data, and `span` is not read.
DistanceFastPath fast_path_of(const DistanceScores& scores, std::int64_t value_size);
// A launch takes the portable kernels instead on other GPUs, and for tensors that TMA cannot read.
bool hopper_takes(const DistanceScores& scores, std::int64_t value_size);

}  // namespace longstride::kernels
