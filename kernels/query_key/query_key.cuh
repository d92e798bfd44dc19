// Shared by the kernels that transform queries and keys (kernels/query_key/query_key.h).
#pragma once
#include "kernels/query_key/query_key.h"

namespace longstride::kernels::cuda {

constexpr int most_transformed = 128;  // elements of a query or key

// The turns of every pair from one position to the next; 0 without rotation. `size`: at most most_transformed.
struct PairTurns {
  double of[most_transformed / 2] = {};

  PairTurns() = default;
  PairTurns(const QueryKeyTransform& transform, std::int64_t size) {
    for (std::int64_t i = 0; i < size / 2 && transform.rotates(); ++i) of[i] = transform.turns(i, size);
  }
};

// The angle is in turns and is first reduced in fp64 to at most half a turn.
__device__ __forceinline__ void sine_and_cosine(double turns, float* sine, float* cosine) {
  sincospif(2.0f * static_cast<float>(turns - rint(turns)), sine, cosine);
}

}  // namespace longstride::kernels::cuda
