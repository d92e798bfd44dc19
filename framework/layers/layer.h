// A layer maps x to y and, given dy, gives dx and adds to its parameters' gradients.
//
// The caller owns x, y, dy and dx. With a tape, x must stay valid until backward (the layer may push a view of
// it instead of a copy); with a null tape nothing is saved (evaluation). `dx` is overwritten, parameter
// gradients accumulate. y may be absent when only the tape is wanted (recompute), and a layer then skips the
// work whose only product is y.
#pragma once
#include "framework/core/context.h"

namespace longstride {

class Layer {
 public:
  virtual ~Layer() = default;
  virtual void forward(Context& ctx, const Tensor& x, const Tensor& y, Tape* tape) const = 0;
  virtual void backward(Context& ctx, const Tensor& dy, const Tensor& dx, Tape& tape) const = 0;
};

}  // namespace longstride
