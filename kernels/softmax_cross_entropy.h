// losses = -log softmax(logits)[target] in nats, and, in place of the logits, scale * d(sum of losses)/dlogits
// = scale (softmax(logits) - onehot(target)).
#pragma once
#include "kernels/base/view.h"

namespace longstride::kernels {

struct SoftmaxCrossEntropyArgs {
  View logits;   // (rows, vocabulary) contiguous; overwritten with the gradient when with_gradient
  View targets;  // (rows) u8, below vocabulary
  View losses;   // (rows), of the logits' type
  bool with_gradient = false;
  double scale = 1;
};

namespace cpu {
void softmax_cross_entropy(const SoftmaxCrossEntropyArgs&, const Launch&);
}
namespace cuda {
void softmax_cross_entropy(const SoftmaxCrossEntropyArgs&, const Launch&);
}

}  // namespace longstride::kernels
