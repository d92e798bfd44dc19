#include "framework/layers/input.h"

#include "framework/ops/basic.h"

namespace longstride {

// A norm writes the compute type.
void Input::forward(Context& ctx, const Batch& batch, const Tensor& h, Tape* tape, std::int64_t first) const {
  if (norm_ == nullptr) {
    embedding_->forward(ctx, batch, h, first);
  } else {
    Scratch scratch(ctx);
    const Tensor x = scratch.like(h, tape);
    embedding_->forward(ctx, batch, x, first);
    const Tensor y = h.dtype() == ctx.compute ? h : scratch.tensor(h.shape(), ctx.compute);
    norm_->forward(ctx, x, y, tape);
    if (h.dtype() != ctx.compute) ops::copy(ctx, y, h);
  }
  dropout_.apply(ctx, h);
}

void Input::backward(Context& ctx, const Tensor& dh, const Batch& batch, Tape& tape, std::int64_t first) const {
  dropout_.apply(ctx, dh);
  if (norm_ == nullptr) return embedding_->backward(ctx, dh, batch, first);
  Scratch scratch(ctx);
  Tensor dy = dh;
  if (dh.dtype() != ctx.compute) ops::copy(ctx, dh, dy = scratch.tensor(dh.shape(), ctx.compute));
  norm_->backward_before(ctx, dy, dh, kernels::HeldGradient::none, nullptr, tape);
  embedding_->backward(ctx, dh, batch, first);
}

}  // namespace longstride
