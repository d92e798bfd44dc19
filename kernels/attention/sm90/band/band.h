// Attention in which every query sees few key tiles, all of its own row set, so every key is seen by few query tiles
// (windows, blocks, short columns).
#pragma once
#include "kernels/attention/attention.h"

namespace longstride::kernels::cuda::sm90 {

// For problems that `supports` accepts. How many key tiles a band may have depends on the heads and the direction
// (band_shape.h).
bool is_band(const AttentionArgs&);
bool is_band(const AttentionBackwardArgs&);

void attention_band(const AttentionArgs&, const Launch&);
// Computes all three gradients in one pass over the band, and the sums of dout * o itself instead of reading delta.
void attention_backward_band(const AttentionBackwardArgs&, const Launch&);

}  // namespace longstride::kernels::cuda::sm90
