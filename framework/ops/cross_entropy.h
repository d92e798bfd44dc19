// The output head: logits = hidden W_out^T (no bias), loss = -log softmax(logits)[target] in nats. Chunked over
// positions, so that the logits of a million positions are never held at once.
#pragma once
#include "framework/core/context.h"

namespace longstride::ops {

struct CrossEntropy {
  Tensor hidden;   // (..., width), whose leading dimensions fold into rows
  Tensor weight;   // (vocabulary, width)
  Tensor targets;  // (rows) u8
  Tensor losses;   // (rows) of the exact type, written
  // Where dhidden is given, the same pass computes gradients of scale * sum of losses. Where the context has a loss
  // scale, they are multiplied by it.
  double scale = 1;
  Tensor dhidden = {};  // like hidden, written
  Tensor dweight = {};  // like weight, of the exact type; accumulates
};

void cross_entropy(Context& ctx, const CrossEntropy& args);

}  // namespace longstride::ops
