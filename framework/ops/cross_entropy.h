// The output head: logits = hidden W_out^T + b, loss = -weight log softmax(logits)[target] in nats. Chunked over
// positions, so that the logits of a million positions are never held at once.
#pragma once
#include "framework/core/context.h"

namespace longstride::ops {

struct CrossEntropy {
  Tensor hidden;   // (..., width), whose leading dimensions fold into rows
  Tensor weight;   // (vocabulary, width)
  Tensor targets;  // (rows) u8 or u16
  Tensor losses;   // (rows) of the exact type, written
  // If dhidden is given, the same pass computes the gradients of scale * sum of losses, multiplied by the context's
  // loss scale if it has one.
  double scale = 1;
  Tensor dhidden = {};  // like hidden, written
  Tensor dweight = {};  // like weight, of the exact type; accumulates
  Tensor bias = {};     // (vocabulary) of the exact type; absent: 0
  Tensor dbias = {};    // like bias; accumulates
  Tensor weights = {};  // (rows) f32, what each loss is multiplied by; absent: 1
  Tensor right = {};    // (rows) u8, written: 1 where no logit exceeds the target's; may be absent
};

void cross_entropy(Context& ctx, const CrossEntropy& args);

}  // namespace longstride::ops
