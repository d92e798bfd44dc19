// The kernels of a band's backward pass, chosen by head size and, for large heads, by the width of the band.
#pragma once
#include "kernels/attention/attention.h"
#include "kernels/attention/sm90/band/band_plan.h"
#include "kernels/attention/sm90/band/long_band_plan.h"

namespace longstride::kernels::cuda::sm90 {

void attention_backward_band_small(const AttentionBackwardArgs&, const BandPlan&, const Launch&);  // at most 32
void attention_backward_band_large(const AttentionBackwardArgs&, const BandPlan&, const Launch&);  // keys: at most 64
// delta (batch, heads, n) f32: the sum over a row of dout * o. key_sums: plan.scratch_bytes().
void attention_backward_long_band(const AttentionBackwardArgs&, const LongBandPlan& plan, const float* delta,
                                  float* key_sums, const Launch&);

}  // namespace longstride::kernels::cuda::sm90
