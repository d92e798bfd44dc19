// How many positions back decoders with a memory read (LooksBack), from the masks of their layers.
//
// The rows that layer n remembers are inputs of its attention, which layers below computed in earlier segments with
// memories of their own: with a memory of M positions, N layers read up to N M positions before the segment (Dai et al.
// 2019, section 3.2). Windows, dilation and spans limit that; a compressed row stands for all positions it was made of.
#pragma once
#include <vector>

#include "framework/mixers/distance/config.h"
#include "framework/models/attention_views.h"
#include "kernels/distance_attention/distance_attention.h"

namespace longstride {

// Of these layers in a row, whose masks are those of a whole segment.
LookBack look_back_through(const std::vector<kernels::DistanceScores>& layers, const MemoryConfig& memory);

}  // namespace longstride
