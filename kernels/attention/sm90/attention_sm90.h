// Attention by kernels for Hopper: TMA and wgmma, for bf16 and f16.
#pragma once
#include "kernels/attention/attention.h"

namespace longstride::kernels::cuda::sm90 {

void attention(const AttentionArgs&, const Launch&);
// delta (batch, heads, n) f32: the sum over a row of dout * o.
void attention_backward(const AttentionBackwardArgs&, const float* delta, const Launch&);

}  // namespace longstride::kernels::cuda::sm90
