// Attention backward over a long band (long_band_plan.h), or own blocks and summary rows (joined_plan.h), bf16 and f16,
// on Hopper. Heads are padded: TMA fills the columns beyond theirs with zeros.
#pragma once
#include <cstddef>

#include "kernels/attention/attention.h"
#include "kernels/attention/sm90/long_band/joined_plan.h"
#include "kernels/attention/sm90/long_band/long_band_plan.h"

namespace longstride::kernels::cuda::sm90 {

// delta (batch, heads, n) f32: the sum over a row of dout * o.
// A block per class: plans whose classes are short.
void attention_backward_classes(const AttentionBackwardArgs&, const LongBandPlan&, const float* delta, const Launch&);
// Blocks that take turns at the sums of dQ: plans with in_turns. scratch: plan.scratch_bytes(), aligned to 16 bytes.
void attention_backward_turns(const AttentionBackwardArgs&, const LongBandPlan&, const float* delta, std::byte* scratch,
                              const Launch&);
// The same over own blocks and summary rows (joined_order.h).
void attention_backward_joined(const AttentionBackwardArgs&, const JoinedPlan&, const float* delta, std::byte* scratch,
                               const Launch&);

}  // namespace longstride::kernels::cuda::sm90
