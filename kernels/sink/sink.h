// A sink: a logit per head that joins the softmax of every query and has no value. From the o and lse of attention, in
// place,
//   o <- o / (1 + exp(sink - lse)),  lse <- log(exp(lse) + exp(sink)):
// a row that saw no key gets o = 0 and lse = sink. The backward pass of attention is the same with these o and lse, and
//   dsink_h += -sum over rows of exp(sink_h - lse) (dout . o),
// in a fixed order.
#pragma once
#include "kernels/base/op.h"
#include "kernels/base/row_chunks.h"

namespace longstride::kernels {

struct SinkArgs {
  Tensor sink;  // (heads), of lse's type; finite
  Tensor o;     // (batch, n, heads, size), any strides but the last; f32 or f64 on the CPU; bf16, f16 or f32 on a GPU
  Tensor lse;   // (batch, heads, n) contiguous; f32 on a GPU, else of o's type

  void check(Device device) const;
  Cost cost() const { return {WorkKind::other, 2 * bytes_of(o, lse), 0}; }
};
LONGSTRIDE_OP(sink, SinkArgs)

struct SinkBackwardArgs {
  Tensor sink, o, lse;  // as above, o and lse with the sink
  Tensor dout;          // like o
  Tensor dsink;         // like sink, added to
  Tensor scratch = {};

  void check(Device device) const;
  Cost cost() const { return {WorkKind::other, bytes_of(o, lse, dout), 0}; }
  Tensor scratch_on(Device device) const {
    return {nullptr, sink.dtype(), {row_chunks(device, o.size(0) * o.size(1)).chunks, o.size(2)}};
  }
};
LONGSTRIDE_OP(sink_backward, SinkBackwardArgs)

}  // namespace longstride::kernels
