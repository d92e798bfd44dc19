// What the kernels that transform queries and keys share (kernels/query_key/query_key.h).
#pragma once
#include "kernels/query_key/query_key.h"

namespace longstride::kernels::cuda {

constexpr int most_transformed = 128;  // elements of a query or key

// Of every pair, from one position to the next; 0 where there is no rotation. `size`: up to most_transformed.
struct PairTurns {
  double of[most_transformed / 2] = {};

  PairTurns() = default;
  PairTurns(const QueryKeyTransform& transform, std::int64_t size) {
    for (std::int64_t i = 0; i < size / 2 && transform.rotates(); ++i) of[i] = transform.turns(i, size);
  }
};

// The angle in turns, brought to half a turn at most in fp64.
__device__ __forceinline__ void sine_and_cosine(double turns, float* sine, float* cosine) {
  sincospif(2.0f * static_cast<float>(turns - rint(turns)), sine, cosine);
}

}  // namespace longstride::kernels::cuda
