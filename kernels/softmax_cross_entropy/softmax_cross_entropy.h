// losses = -weight log softmax(logits)[target] in nats, and gradient = scale * d(sum of losses)/dlogits
// = scale weight (softmax(logits) - onehot(target)). Without weights every weight is 1.
#pragma once
#include "kernels/base/op.h"

namespace longstride::kernels {

struct SoftmaxCrossEntropyArgs {
  Tensor logits;         // (rows, vocabulary) contiguous; f32 on a GPU
  Tensor targets;        // (rows) u8 or u16, below vocabulary
  Tensor losses;         // (rows), of the logits' type
  Tensor gradient = {};  // optional, like logits; may be logits. On a GPU of any type that it computes in
  double scale = 1;
  const float* loss_scale = nullptr;  // device memory; if given, the gradient is also multiplied by it
  Tensor weights = {};                // optional, (rows) f32
  Tensor right = {};                  // optional, (rows) u8, written: 1 where no logit exceeds the target's

  void check(Device device) const;
  Cost cost() const { return {WorkKind::loss, bytes_of(logits, gradient), 0}; }
};

LONGSTRIDE_OP(softmax_cross_entropy, SoftmaxCrossEntropyArgs)

}  // namespace longstride::kernels
