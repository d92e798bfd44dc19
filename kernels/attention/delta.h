// The first step of every backward pass.
#pragma once
#include <cstddef>

#include "kernels/attention/attention.h"

namespace longstride::kernels {

// Bytes of delta, which comes first in the scratch.
inline std::size_t delta_bytes(const AttentionBackwardArgs& args) {
  constexpr std::size_t line = 256;
  const auto rows = static_cast<std::size_t>(args.q.size(0) * args.q.size(1) * args.q.size(2));
  return (rows * sizeof(float) + line - 1) / line * line;
}

namespace cuda {

// delta (batch, heads, n) f32: the sum over a row of dout * o.
void attention_delta(const AttentionBackwardArgs&, float* delta, const Launch&);

// Zeroes dk and dv of the heads whose first part does not have all positions as keys (summary rows alone).
void attention_zero_unreached(const AttentionBackwardArgs&, const Launch&);

}  // namespace cuda
}  // namespace longstride::kernels
