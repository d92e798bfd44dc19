// losses = -weights log softmax(hidden weight^T + bias)[target] in nats, and gradient = scale * d(sum of
// losses)/dlogits: the product of an output head and softmax_cross_entropy in one op, so that logits need not pass
// through memory.
#pragma once
#include "kernels/gemm/gemm.h"
#include "kernels/softmax_cross_entropy/softmax_cross_entropy.h"

namespace longstride::kernels {

struct LogitsLossArgs {
  Tensor hidden;         // (rows, width), last dimension dense
  Tensor weight;         // (vocabulary, width) of hidden's type
  Tensor bias = {};      // (vocabulary) as a gemm's bias; absent: 0
  Tensor targets;        // (rows) u8 or u16, below vocabulary
  Tensor losses;         // (rows) of the exact type (tensor_checks.h)
  Tensor gradient = {};  // (rows, vocabulary) of hidden's type; may be absent
  double scale = 1;
  const float* loss_scale = nullptr;  // as in SoftmaxCrossEntropyArgs
  Tensor weights = {};                // (rows) f32; absent: 1
  Tensor right = {};                  // (rows) u8, as in SoftmaxCrossEntropyArgs; may be absent
  Tensor scratch = {};                // the logits, unless they have the gradient's type and its place

  void check(Device device) const;
  Tensor scratch_on(Device device) const;

  GemmArgs product() const;
  SoftmaxCrossEntropyArgs loss() const;
};

LONGSTRIDE_OP(logits_loss, LogitsLossArgs)

}  // namespace longstride::kernels
