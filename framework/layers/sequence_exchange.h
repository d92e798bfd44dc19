// Exchange between the ranks that divide a sequence (Context::group). Outside attention a rank holds all heads for its
// own run of positions; inside attention it holds some of the heads for all positions, so any pattern is computed as on
// one rank (Jacobs et al. 2023). With one rank both are the same tensor: nothing is copied or allocated.
#pragma once
#include <cstdint>
#include <vector>

#include "framework/core/context.h"

namespace longstride {

// Memory for positions (batch, seq / ranks, width) that correspond to heads (batch, seq, width / ranks).
Tensor positions_like(const Context& ctx, const Tensor& heads, Scratch& scratch, Tape* tape = nullptr);

// The columns of `positions` are the `groups` one after another, each with all heads in order. The columns of `heads`
// are the same groups, each with only this rank's heads. Several ranks exchange one sequence at a time.
void positions_to_heads(Context& ctx, const Tensor& positions, const std::vector<std::int64_t>& groups,
                        const Tensor& heads);
void heads_to_positions(Context& ctx, const Tensor& heads, const std::vector<std::int64_t>& groups,
                        const Tensor& positions);

}  // namespace longstride
