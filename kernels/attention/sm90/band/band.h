// Attention in which every query sees few key tiles, all of its own row set, so every key is seen by few query tiles
// (windows, blocks, short columns).
#pragma once
#include "kernels/attention/attention.h"
#include "kernels/attention/sm90/band/band_plan.h"

namespace longstride::kernels::cuda::sm90 {

void attention_band(const AttentionArgs&, const BandPlan&, const Launch&);
// All three gradients in one pass over the band. Both compute the sums of dout * o themselves instead of reading delta.
void attention_backward_band_small(const AttentionBackwardArgs&, const BandPlan&, const Launch&);  // heads: at most 32
void attention_backward_band_large(const AttentionBackwardArgs&, const BandPlan&, const Launch&);  // keys: at most 64

}  // namespace longstride::kernels::cuda::sm90
