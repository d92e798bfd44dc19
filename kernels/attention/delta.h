// The first step of every backward pass.
#pragma once
#include "kernels/attention/attention.h"

namespace longstride::kernels::cuda {

// delta (batch, heads, n) f32: the sum over a row of dout * o.
void attention_delta(const AttentionBackwardArgs&, float* delta, const Launch&);

// Zeroes dk and dv of the heads whose first part does not have all positions as keys (summary rows alone).
void attention_zero_unreached(const AttentionBackwardArgs&, const Launch&);

}  // namespace longstride::kernels::cuda
