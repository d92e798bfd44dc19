// Between ranks that hold a run of one sequence's positions each (Context::group): all heads of a run of positions on
// every rank, or a run of heads at all positions (Jacobs et al. 2023). Attention is what needs the latter, and then any
// pattern is computed as on one rank.
#pragma once
#include <cstdint>
#include <vector>

#include "framework/core/context.h"

namespace longstride {

// positions (1, seq / ranks, width), whose columns are `groups` one after another, each of all heads in order; heads
// (1, seq, width / ranks), whose columns are the same groups, each of this rank's heads.
void positions_to_heads(Context& ctx, const Tensor& positions, const std::vector<std::int64_t>& groups,
                        const Tensor& heads);
void heads_to_positions(Context& ctx, const Tensor& heads, const std::vector<std::int64_t>& groups,
                        const Tensor& positions);

}  // namespace longstride
