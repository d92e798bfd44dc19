#include "framework/layers/sequence.h"

#include "framework/core/errors.h"

namespace longstride {

void Sequence::forward(Context& ctx, const Tensor& x, const Tensor& y, Tape* tape) const {
  LONGSTRIDE_CHECK(!layers_.empty(), "a sequence of no layers");
  if (tape == nullptr) {
    // Nothing is kept: every layer after the first works in place on y.
    for (std::size_t k = 0; k < layers_.size(); ++k) layers_[k]->forward(ctx, k == 0 ? x : y, y, nullptr);
    return;
  }
  Tensor current = x;
  for (std::size_t k = 0; k < layers_.size(); ++k) {
    tape->open_frame();
    const bool last = k + 1 == layers_.size();
    const Tensor next = last ? y : tape->tensor(x.shape(), x.dtype());
    layers_[k]->forward(ctx, current, next, tape);
    current = next;
  }
}

void Sequence::backward(Context& ctx, const Tensor& dy, const Tensor& dx, Tape& tape) const {
  for (std::size_t k = layers_.size(); k-- > 0;) {
    layers_[k]->backward(ctx, k + 1 == layers_.size() ? dy : dx, dx, tape);
    tape.close_frame();
  }
}

void Recomputed::forward(Context& ctx, const Tensor& x, const Tensor& y, Tape* tape) const {
  if (tape != nullptr) tape->push(x);
  if (y.given()) layer_->forward(ctx, x, y, nullptr);
}

void Recomputed::backward(Context& ctx, const Tensor& dy, const Tensor& dx, Tape& tape) const {
  const Tensor x = tape.pop();
  tape.open_frame();
  layer_->forward(ctx, x, Tensor{}, &tape);
  layer_->backward(ctx, dy, dx, tape);
  tape.close_frame();
}

}  // namespace longstride
