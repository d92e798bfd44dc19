// Normalisation and rotary positions of queries and keys, between their product and attention
// (kernels/query_key/query_key.h).
#pragma once
#include "framework/core/context.h"
#include "kernels/query_key/query_key.h"

namespace longstride::ops {

// x, y (batch, seq, heads, size), last dimension dense, one type; row t of a sequence is its position first + t. While
// decoding on a GPU the position is ctx.position's instead. A rotation wants an even size. y is memory of its own.
void query_key(Context& ctx, const kernels::QueryKeyTransform& transform, const Tensor& x, std::int64_t first,
               const Tensor& y);
// dx from dy and the x of forward; dx may be dy.
void query_key_backward(Context& ctx, const kernels::QueryKeyTransform& transform, const Tensor& dy, const Tensor& x,
                        std::int64_t first, const Tensor& dx);

}  // namespace longstride::ops
