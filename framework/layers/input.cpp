#include "framework/layers/input.h"

#include "framework/ops/basic.h"
#include "kernels/elementwise/elementwise.h"

namespace longstride {

namespace {

// A batch whose tokens are its types.
Batch types_of(const Batch& batch) { return {batch.types}; }

}  // namespace

void Input::embed_positions(Context& ctx, const Batch& batch, const Tensor& y, std::int64_t first) const {
  embedding_->forward(ctx, batch, y, first);
  if (types_ == nullptr) return;
  Scratch scratch(ctx);
  const Tensor of_types = scratch.like(y);
  types_->forward(ctx, types_of(batch), of_types, first);
  ops::run(ctx, kernels::AddArgs{of_types, y});
}

void Input::embed_positions_back(Context& ctx, const Tensor& dy, const Batch& batch, std::int64_t first) const {
  embedding_->backward(ctx, dy, batch, first);
  if (types_ != nullptr) types_->backward(ctx, dy, types_of(batch), first);
}

void Input::embed(Context& ctx, const Batch& batch, const Tensor& h, std::int64_t first) const {
  if (added_ == nullptr) return embed_positions(ctx, batch, h, first);
  Scratch scratch(ctx);
  const Tensor positions = scratch.tensor({h.size(0), h.size(1) - added_->count(), h.size(2)}, h.dtype());
  embed_positions(ctx, batch, positions, first);
  added_->place(ctx, positions, h);
  added_->forward(ctx, h);
}

void Input::embed_back(Context& ctx, const Tensor& dh, const Batch& batch, std::int64_t first) const {
  if (added_ == nullptr) return embed_positions_back(ctx, dh, batch, first);
  Scratch scratch(ctx);
  const Tensor positions = scratch.tensor({dh.size(0), dh.size(1) - added_->count(), dh.size(2)}, dh.dtype());
  added_->take(ctx, dh, positions);
  embed_positions_back(ctx, positions, batch, first);
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
