// Attention with a distance term, or without one, on Hopper: TMA and wgmma. Kernels with the contracts of those in
// gpu/call.h, for the shapes of fast_path.h.
#pragma once
#include "kernels/distance_attention/gpu/call.h"

namespace longstride::kernels::cuda::distance::sm90 {

// True if TMA can read the tensors, and the scale is positive.
bool can_map(const Call&);

// T is __nv_bfloat16 or __half. forward adds the biases itself, to content and position, which are q.
template <class T>
void forward(const Call&, const Launch&);
// All gradients, those of parameters as table_sums and bias_sums.
template <class T>
void backward(const Call&, const Launch&);

}  // namespace longstride::kernels::cuda::distance::sm90
