// Attention backward where every key is seen by few tiles of queries (windows, blocks, short columns): one pass over
// the band yields all three gradients.
#pragma once
#include "kernels/attention/attention.h"

namespace longstride::kernels::cuda::sm90 {

// Of what `supports` accepts.
bool is_band(const AttentionBackwardArgs&);
// Needs no delta: it computes the sums of dout * o itself.
void attention_backward_band(const AttentionBackwardArgs&, const Launch&);
// The same by a kernel of fewer instructions.
void attention_backward_band_lean(const AttentionBackwardArgs&, const Launch&);

}  // namespace longstride::kernels::cuda::sm90
