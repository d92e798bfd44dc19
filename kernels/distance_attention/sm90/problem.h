// What the kernels for Hopper read, passed by value: a call, and maps of its tensors for TMA.
#pragma once
#include <cuda.h>

#include <vector>

#include "kernels/distance_attention/sm90/hopper.h"

namespace longstride::kernels::cuda::distance::hopper {

// The heads of a call that have one dilation. It divides the numbers of queries and keys, so all residue classes have
// as many of either. Tiles are 64 entries of a class of a head, at {0, head, entry, class, sequence}. The table's rows
// are of entries apart: {0, head or 0, m, 0, 0}. What is beyond a tensor, a negative m for example, is read as zero.
struct Problem {
  Call call;
  CUtensorMap content, position, k, v, dout, table;
  std::int32_t step, queries, keys;  // the dilation; entries of a class
  std::int32_t heads;
  std::int32_t first_unit, units;  // what a launch takes of the (sequence, head)s, numbered in this order
  std::uint8_t head[most_heads];
};
std::vector<Problem> problems_of(const Call&, Dtype dtype);

// T's gradient by the units of a problem, from the gradients of scores that dq has saved (saved.cuh). Adds to
// table_sums, except where the units are the first ones.
template <class T>
void dtable(const Problem&, const Launch&);

}  // namespace longstride::kernels::cuda::distance::hopper
