// Which CUDA kernels compute attention, with or without a distance term.
#pragma once
#include <cstdint>

namespace longstride::kernels {

// `automatic` uses the Hopper kernels where the GPU, the tensors and the shapes allow it; `sm90` throws where they do
// not. All meet the same tolerance; each is deterministic.
enum class AttentionPath : std::uint8_t { automatic, sm90, portable };

}  // namespace longstride::kernels
