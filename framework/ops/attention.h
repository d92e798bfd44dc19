// Attention over a pattern: a list of parts merged by log-sum-exp (docs/develop/architecture.md). No n x n matrix
// is ever formed.
#pragma once
#include "framework/core/context.h"
#include "kernels/attention/decode/decode.h"
#include "kernels/attention/pattern/plan.h"

namespace longstride::ops {

// q, k (batch, seq, heads, key size), v, o (batch, seq, heads, value size): views whose last dimension is dense.
// lse (batch, heads, seq), of the residual type. `scale` multiplies q k^T. A row that may attend to nothing gets
// o = 0, lse = -infinity.
void attention(Context& ctx, const kernels::AttentionPlan& plan, const Tensor& q, const Tensor& k, const Tensor& v,
               double scale, const Tensor& o, const Tensor& lse);
// Overwrites dq, dk and dv (strided views like q, k, v).
void attention_backward(Context& ctx, const kernels::AttentionPlan& plan, const Tensor& q, const Tensor& k,
                        const Tensor& v, const Tensor& o, const Tensor& lse, const Tensor& dout, double scale,
                        const Tensor& dq, const Tensor& dk, const Tensor& dv);

// The keys and values of one layer that later positions can still attend to (kernels/attention/decode/decode.h).
struct DecodeCache {
  const kernels::DecodePlan* plan = nullptr;
  Tensor keys;    // (batch, plan->rows, key size)
  Tensor values;  // (batch, plan->rows, value size)
};

// Lives in `scratch`, uninitialised: start by appending position 0.
DecodeCache decode_cache(Scratch& scratch, const kernels::DecodePlan& plan, std::int64_t batch, std::int64_t key_size,
                         std::int64_t value_size, Dtype dtype);
// Stores positions [first, first + rows): k (batch, rows, heads, key size), v (batch, rows, heads, value size).
void append(Context& ctx, const DecodeCache& cache, const Tensor& k, const Tensor& v, std::int64_t first);
// o (batch, 1, heads, value size) of the query q (batch, 1, heads, key size) at `position`, the last one appended.
void attend(Context& ctx, const DecodeCache& cache, const Tensor& q, std::int64_t position, double scale,
            const Tensor& o);

}  // namespace longstride::ops
