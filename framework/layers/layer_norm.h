// y = (x - mean) / sqrt(var + eps) * gain + bias over the last dimension (Ba et al. 2016); eps = 1e-5.
#pragma once
#include <string>

#include "framework/core/context.h"
#include "framework/core/parameters.h"
#include "framework/layers/dropout.h"
#include "kernels/layer_norm/layer_norm.h"

namespace longstride {

// sum = residual + dropout(branch); sum may be residual.
struct BranchSum {
  Tensor branch, residual, sum;
  Dropout after;
};

// The gradient of a branch's output, and its column sums, which accumulate. output may be absent if the gradient equals
// that of the stream: nothing is dropped, and both have one type.
struct BranchGradient {
  Tensor output, sums;
  Dropout after;
};

class LayerNorm {
 public:
  static constexpr float epsilon = 1e-5f;

  // Declares `name`.weight, ones, and `name`.bias, zeros.
  LayerNorm(ParameterSet& parameters, const std::string& name, std::int64_t width);

  // y has the compute type, x the residual stream's. With a tape, x must stay valid until backward.
  void forward(Context& ctx, const Tensor& x, const Tensor& y, Tape* tape) const;
  // The sum and y = norm(sum) in one pass.
  void forward_after(Context& ctx, const BranchSum& add, const Tensor& y, Tape* tape) const;

  // dx becomes the gradient of x; `held` says what it holds before. With `below` the same pass also writes the gradient
  // of the branch that was added to form x, unless that is dx; below->output may be dy.
  void backward_before(Context& ctx, const Tensor& dy, const Tensor& dx, kernels::HeldGradient held,
                       const BranchGradient* below, Tape& tape) const;

  const Parameter& gain() const { return gain_; }
  const Parameter& bias() const { return bias_; }

 private:
  kernels::LayerNormArgs args(const Context& ctx, const Tensor& x, const Tensor& y, Tape* tape) const;

  Parameter& gain_;
  Parameter& bias_;
};

}  // namespace longstride
