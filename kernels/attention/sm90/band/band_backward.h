// The kernels of a band's backward pass, chosen by head size and, for large heads, by the width of the band.
#pragma once
#include "kernels/attention/attention.h"
#include "kernels/attention/sm90/band/band_plan.h"

namespace longstride::kernels::cuda::sm90 {

void attention_backward_band_small(const AttentionBackwardArgs&, const BandPlan&, const Launch&);  // at most 32
void attention_backward_band_large(const AttentionBackwardArgs&, const BandPlan&, const Launch&);  // keys: at most 64

}  // namespace longstride::kernels::cuda::sm90
