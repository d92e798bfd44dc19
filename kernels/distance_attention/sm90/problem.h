// What the kernels for Hopper read, passed by value: a call, and maps of its tensors for TMA.
#pragma once
#include <cuda.h>

#include "kernels/distance_attention/sm90/hopper.h"

namespace longstride::kernels::cuda::distance::hopper {

// Tiles are 64 rows of one head, at {0, head, row, 0, sequence}. The table's rows are of distances: {0, head or 0,
// distance, 0, 0}. What is beyond a tensor, a negative distance for example, is read as zero.
struct Problem {
  Call call;
  CUtensorMap content, position, k, v, dout, table;
};
Problem problem_of(const Call&, Dtype dtype);

}  // namespace longstride::kernels::cuda::distance::hopper
