// Attention over a pattern: a list of parts merged by log-sum-exp (docs/architecture.md). No n x n matrix anywhere.
#pragma once
#include "framework/core/context.h"
#include "kernels/attention/plan.h"

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

}  // namespace longstride::ops
