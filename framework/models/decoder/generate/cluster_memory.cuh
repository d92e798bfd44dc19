// The shared memory of a cluster's block, and the product of what is in it: weights with vectors.
#pragma once
#include "framework/models/decoder/generate/product.cuh"

namespace longstride::generation {

// The block's shared memory. A pointer that is passed around would hide the address space from the compiler.
__device__ __forceinline__ char* block_memory() {
  extern __shared__ __align__(128) char shared[];
  return shared;
}

// d += one block of a tile (product.cuh), 8 rows by 32 columns, times up to 4 vectors, by one instruction. The left
// operand has 16 rows: the upper 8 are this lane's words x and z, the lower 8 its words y and w, which are the same
// rows at other columns. The right operand therefore holds each vector twice, and a product comes in two halves: that
// of row lane / 4 and vector lane % 4 is d[0] + d[3]. `pair`: words x and z of vector lane / 8; y and w in odd groups
// of 4 lanes.
template <class T>
__device__ inline void multiply_block(float (&d)[4], const uint4& w, const uint2& pair) {
  multiply_add<T>(d, w.x, w.y, w.z, w.w, pair.x, pair.y);
}

}  // namespace longstride::generation
