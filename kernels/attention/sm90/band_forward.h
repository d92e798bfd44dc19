// Attention forward where every query sees few tiles of keys of its own stream (windows, blocks, short columns).
#pragma once
#include "kernels/attention/attention.h"

namespace longstride::kernels::cuda::sm90 {

// Ways to run it, for comparison: three key tiles at once and three blocks of one warpgroup on a multiprocessor; two
// and four; three, and one block of three warpgroups and one that loads.
enum class BandForwardWay { three_blocks, four_blocks, one_block };

// Of what `supports` accepts.
bool is_band(const AttentionArgs&);
void attention_band(const AttentionArgs&, BandForwardWay, const Launch&);

}  // namespace longstride::kernels::cuda::sm90
