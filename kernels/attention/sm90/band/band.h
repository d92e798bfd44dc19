// Attention where every query sees few tiles of keys of its own stream, and so every key is seen by few tiles of
// queries (windows, blocks, short columns).
#pragma once
#include "kernels/attention/attention.h"

namespace longstride::kernels::cuda::sm90 {

// Of what `supports` accepts. Heads of 64/128 are the other kernels' in the forward pass, which are faster there.
bool is_band(const AttentionArgs&);
bool is_band(const AttentionBackwardArgs&);

void attention_band(const AttentionArgs&, const Launch&);
// All three gradients by one pass over the band. Needs no delta: it computes the sums of dout * o itself.
void attention_backward_band(const AttentionBackwardArgs&, const Launch&);

}  // namespace longstride::kernels::cuda::sm90
