// Attention by kernels for Hopper: TMA and wgmma, for bf16 and f16, one function per family of choice.h. Where heads
// are smaller than a kernel's, TMA fills the columns beyond theirs with zeros.
#pragma once
#include <cstddef>

#include "kernels/attention/attention.h"
#include "kernels/attention/choice.h"
#include "kernels/attention/sm90/band/band_plan.h"
#include "kernels/attention/sm90/long_band/interval_plan.h"
#include "kernels/attention/sm90/long_band/joined_plan.h"
#include "kernels/attention/sm90/long_band/long_band_plan.h"

namespace longstride::kernels::cuda::sm90 {

void attention(const AttentionArgs&, const AttentionChoice&, const Launch&);
void attention_band(const AttentionArgs&, const BandPlan&, const Launch&);

// delta (batch, heads, n) f32: the sum over a row of dout * o. scratch: the choice's sums_bytes.
void attention_backward(const AttentionBackwardArgs&, const AttentionChoice&, const float* delta, std::byte* scratch,
                        const Launch&);
void attention_backward_classes(const AttentionBackwardArgs&, const LongBandPlan&, const float* delta, const Launch&);
// scratch: the plan's scratch_bytes(), aligned to 16 bytes.
void attention_backward_turns(const AttentionBackwardArgs&, const LongBandPlan&, const float* delta, std::byte* scratch,
                              const Launch&);
void attention_backward_joined(const AttentionBackwardArgs&, const JoinedPlan&, const float* delta, std::byte* scratch,
                               const Launch&);
void attention_backward_intervals(const AttentionBackwardArgs&, const IntervalPlan&, const float* delta,
                                  std::byte* scratch, const Launch&);
// All three gradients in one pass over the band, and delta on the way.
void attention_backward_band_small(const AttentionBackwardArgs&, const BandPlan&, const Launch&);  // heads: at most 32
void attention_backward_band_large(const AttentionBackwardArgs&, const BandPlan&, const Launch&);  // keys: at most 64

}  // namespace longstride::kernels::cuda::sm90
