// The output head: logits = hidden W_out^T (no bias), loss = -log softmax(logits)[target] in nats. Chunked over
// positions, so that the logits of a million positions are never held at once.
#pragma once
#include "framework/core/context.h"

namespace longstride::ops {

// hidden (..., width) whose leading dimensions fold into rows, weight (vocabulary, width), targets (rows) u8, losses
// (rows) of the residual type.
void cross_entropy(Context& ctx, const Tensor& hidden, const Tensor& weight, const Tensor& targets,
                   const Tensor& losses);
// The same, and in the same pass dhidden (like hidden) = scale * d(sum of losses)/dhidden and dweight += scale *
// d/dweight. Where the context has a loss scale, both are multiplied by it.
void cross_entropy_with_gradient(Context& ctx, const Tensor& hidden, const Tensor& weight, const Tensor& targets,
                                 double scale, const Tensor& losses, const Tensor& dhidden, const Tensor& dweight);

}  // namespace longstride::ops
