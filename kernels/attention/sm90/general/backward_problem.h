// What a launch of a backward kernel takes, by value, in its parameters.
#pragma once
#include <cstdint>

#include "kernels/attention/attention.h"
#include "kernels/attention/sm90/general/backward_tiling.h"
#include "kernels/attention/sm90/general/geometry.h"
#include "kernels/attention/sm90/general/stream_kinds.h"
#include "kernels/attention/sm90/tensor_map.h"

namespace longstride::kernels::cuda::sm90 {

// A gradient to write: rows of one (sequence, head), strides in elements.
struct Gradient {
  void* data;
  std::int64_t stride[3];
  std::int32_t size;
};

struct BackwardProblem {
  // Of the streams' kinds: of what a block owns, and of what streams past it. Key-sized: q or k; value-sized: dO or v.
  StreamMaps own_key_sized[StreamKinds::most], own_value_sized[StreamKinds::most];
  StreamMaps key_sized[StreamKinds::most], value_sized[StreamKinds::most];
  Geometry geometry;
  std::uint8_t query_kind[Geometry::most_passes];
  std::uint8_t key_kind[Geometry::most_passes][PassGeometry::most_parts];
  std::int32_t part;  // Side::keys: the number of the part; Side::queries takes all, and its `part` is 0
  bool adds[Geometry::most_passes][PassGeometry::most_parts];  // to what earlier launches have written
  std::int32_t batch;
  float scale;
  const float *lse, *delta;
  Gradient key_sized_gradient, value_sized_gradient;  // dQ, or dK and dV
};

// Launch the kernel of one side for one pass: fill in the maps and kinds of `problem`.
void launch_backward_queries(const AttentionBackwardArgs& args, BackwardProblem& problem, const Launch& launch);
void launch_backward_keys(const AttentionBackwardArgs& args, BackwardProblem& problem, const Launch& launch);

}  // namespace longstride::kernels::cuda::sm90
