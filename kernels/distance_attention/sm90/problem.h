// The arguments of the kernels for Hopper, passed by value: a call, and maps of its tensors for TMA.
#pragma once
#include <cuda.h>

#include <vector>

#include "kernels/distance_attention/sm90/distance_sm90.h"

namespace longstride::kernels::cuda::distance::sm90 {

// The heads of a call that have one dilation. It divides the numbers of queries and keys, so all residue classes have
// as many of either. Tiles are 64 entries of a class of a head, at {0, head, entry, class, sequence}. The table's rows
// are of entries apart: {0, head or 0, m, 0, 0}. What is beyond a tensor, a negative m for example, is read as zero.
struct Problem {
  Call call;
  CUtensorMap content, position, k, v, dout, table;
  std::int32_t step, queries, keys;  // the dilation; entries of a class
  std::int32_t heads;
  std::int32_t first_unit, units;  // a launch's (sequence, head)s, numbered in this order
  std::uint8_t head[most_heads];
};
std::vector<Problem> problems_of(const Call&, Dtype dtype);

// Gradients of the units of a problem. dq saves what is given room: probabilities, and gradients of scores (saved.cuh).
template <class T>
void dq(const Problem&, const Launch&);
// T's gradient from the saved gradients of scores. Adds to table_sums, except where the units are the first ones.
template <class T>
void dtable(const Problem&, const Launch&);
// dk and dv without a table, and from saved probabilities.
template <class T>
void dkdv(const Problem&, const Launch&);
template <class T>
void dkdv_of_saved(const Problem&, const Launch&);

}  // namespace longstride::kernels::cuda::distance::sm90
