// Independent yes or no: losses = -weight log p(target), p(1) = sigmoid(logit), in nats, and gradient = scale * d(sum
// of losses)/dlogit = scale weight (sigmoid(logit) - target). Without weights every weight is 1.
#pragma once
#include "kernels/base/op.h"

namespace longstride::kernels {

struct BinaryLossArgs {
  Tensor logits;         // (n), contiguous; f32 on a GPU
  Tensor targets;        // (n) u16, 0 or 1
  Tensor losses;         // (n), of the logits' type
  Tensor gradient = {};  // optional, like logits; may be logits. On a GPU of any type that it computes in
  double scale = 1;
  const float* loss_scale = nullptr;  // device memory; if given, the gradient is also multiplied by it
  Tensor weights = {};                // optional, (n) f32
  Tensor right = {};  // optional, (n) u8, written: 1 where the logit's sign is the target's, and 0 is yes

  void check(Device device) const;
  Cost cost() const { return {WorkKind::loss, bytes_of(logits, gradient), 0}; }
};
LONGSTRIDE_OP(binary_loss, BinaryLossArgs)

}  // namespace longstride::kernels
