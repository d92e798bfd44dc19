// A branch of a residual block: it reads the normalised stream and gives what dropout will thin and the stream will
// take up. Normalisation, dropout and the addition are the ResidualStream's, which can then do them in one pass.
//
// All tensors are (batch, seq, width) of the compute type and the caller's. With a tape, `normed` must stay valid until
// backward; with a null tape nothing is saved (evaluation). `out` may be absent when only the tape is wanted
// (recompute), and a branch then skips the work whose only product is out.
#pragma once
#include "framework/core/context.h"
#include "framework/core/parameters.h"

namespace longstride {

class Branch {
 public:
  virtual ~Branch() = default;
  virtual void forward(Context& ctx, const Tensor& normed, const Tensor& out, Tape* tape) const = 0;
  // dnormed is overwritten and may be dout; parameter gradients accumulate, but for one: the gradient of the bias that
  // is added last is the column sums of dout, which whoever computes dout adds to output_bias_gradient() in the same
  // pass.
  virtual Tensor output_bias_gradient() const = 0;
  virtual const Parameter& first_matrix() const = 0;  // that the branch has declared
  virtual void backward(Context& ctx, const Tensor& dout, const Tensor& dnormed, Tape& tape) const = 0;
};

}  // namespace longstride
