#include "framework/layers/input.h"

#include "framework/ops/basic.h"

namespace longstride {

void Input::embed(Context& ctx, const Batch& batch, const Tensor& h, std::int64_t first) const {
  if (added_ == nullptr) return embedding_->forward(ctx, batch, h, first);
  Scratch scratch(ctx);
  const Tensor positions = scratch.tensor({h.size(0), h.size(1) - added_->count(), h.size(2)}, h.dtype());
  embedding_->forward(ctx, batch, positions, first);
  added_->place(ctx, positions, h);
  added_->forward(ctx, h);
}

void Input::embed_back(Context& ctx, const Tensor& dh, const Batch& batch, std::int64_t first) const {
  if (added_ == nullptr) return embedding_->backward(ctx, dh, batch, first);
  Scratch scratch(ctx);
  const Tensor positions = scratch.tensor({dh.size(0), dh.size(1) - added_->count(), dh.size(2)}, dh.dtype());
  added_->take(ctx, dh, positions);
  embedding_->backward(ctx, positions, batch, first);
  added_->backward(ctx, dh);
}

// A norm writes the compute type.
void Input::forward(Context& ctx, const Batch& batch, const Tensor& h, Tape* tape, std::int64_t first) const {
  if (norm_ == nullptr) {
    embed(ctx, batch, h, first);
  } else {
    Scratch scratch(ctx);
    const Tensor x = scratch.like(h, tape);
    embed(ctx, batch, x, first);
    const Tensor y = h.dtype() == ctx.compute ? h : scratch.tensor(h.shape(), ctx.compute);
    norm_->forward(ctx, x, y, tape);
    if (h.dtype() != ctx.compute) ops::copy(ctx, y, h);
  }
  dropout_.apply(ctx, h);
}

void Input::backward(Context& ctx, const Tensor& dh, const Batch& batch, Tape& tape, std::int64_t first) const {
  dropout_.apply(ctx, dh);
  if (norm_ == nullptr) return embed_back(ctx, dh, batch, first);
  Scratch scratch(ctx);
  Tensor dy = dh;
  if (dh.dtype() != ctx.compute) ops::copy(ctx, dh, dy = scratch.tensor(dh.shape(), ctx.compute));
  norm_->backward_before(ctx, dy, dh, kernels::HeldGradient::none, nullptr, tape);
  embed_back(ctx, dh, batch, first);
}

}  // namespace longstride
