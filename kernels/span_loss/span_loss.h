// Where a span begins and ends, two choices among the positions of a row (Devlin et al. 2019):
//   losses[r, c] = -weight log softmax(logits[r, 0 .. end[r] - 1, c])[target], c = 0 of the begin, 1 of the last
//   position
// in nats, and gradient = scale * d(sum of losses)/dlogits, 0 from `end` on. Position 0 stands for no span.
#pragma once
#include "kernels/base/op.h"

namespace longstride::kernels {

struct SpanLossArgs {
  Tensor logits;         // (rows, n, 2), contiguous; f32 on a GPU
  Tensor end = {};       // (rows, 1) i32, any stride, from 1 to n; absent: n
  Tensor targets;        // (rows, 2) u16, below the end
  Tensor losses;         // (rows, 2), of the logits' type
  Tensor gradient = {};  // optional, like logits. On a GPU of any type that it computes in
  double scale = 1;
  const float* loss_scale = nullptr;  // device memory; if given, the gradient is also multiplied by it
  Tensor weights = {};                // optional, (rows, 2) f32
  // Optional, (rows, 2) f32, written: of the span with the best sum of scores, or none if position 0 has a better one,
  // 1 if it is the target and 0 elsewhere; and twice the positions that both have by the sum of their lengths (F1).
  Tensor right = {};

  void check(Device device) const;
  Cost cost() const { return {WorkKind::loss, bytes_of(logits, gradient), 0}; }
};
LONGSTRIDE_OP(span_loss, SpanLossArgs)

}  // namespace longstride::kernels
