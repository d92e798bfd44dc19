// losses = -log softmax(logits)[target] in nats, and gradient = scale * d(sum of losses)/dlogits
// = scale (softmax(logits) - onehot(target)).
#pragma once
#include "kernels/base/view.h"

namespace longstride::kernels {

struct SoftmaxCrossEntropyArgs {
  View logits;    // (rows, vocabulary) contiguous; f32 on a GPU
  View targets;   // (rows) u8, below vocabulary
  View losses;    // (rows), of the logits' type
  View gradient;  // absent, or like logits; may be logits. On a GPU of any type it computes in
  double scale = 1;
  const float* loss_scale = nullptr;  // device memory; when given, the gradient is multiplied by it too
};

namespace cpu {
void softmax_cross_entropy(const SoftmaxCrossEntropyArgs&, const Launch&);
}
namespace cuda {
void softmax_cross_entropy(const SoftmaxCrossEntropyArgs&, const Launch&);
}

}  // namespace longstride::kernels
