// Common to all backward passes: delta, the gradient of a sink, rows without a query.
#pragma once
#include "kernels/attention/attention.h"

namespace longstride::kernels::cuda {

// delta (batch, heads, n) f32: the sum over a row of dout * o, both (batch, n, heads, size).
void attention_delta(const Tensor& o, const Tensor& dout, float* delta, const Launch&);

// dsink -= the sum over a head's rows of exp(sink - lse) delta.
void attention_sink_gradient(const AttentionBackwardArgs&, const float* delta, const Launch&);

// Zeroes dk and dv of the heads whose first part does not have all positions as keys (summary rows alone).
void attention_zero_unreached(const AttentionBackwardArgs&, const Launch&);

}  // namespace longstride::kernels::cuda
