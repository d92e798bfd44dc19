// out = W_2 f(W_1 normed + b_1) + b_2: the inside of b(H)'s dropout (Eq. 13), where f(z) = z sigmoid(1.702 z) or
// max(z, 0). Other activations f, maps without biases and dropout of what f gives take passes of their own after the
// product.
#pragma once
#include <string>

#include "framework/layers/branch.h"
#include "framework/layers/dropout.h"
#include "framework/layers/linear.h"
#include "kernels/activation/activation.h"

namespace longstride {

struct FeedForwardBranchConfig {
  std::int64_t width = 0, inner_width = 0;
  double inner_deviation = 0;   // deviation of W_1's initial values
  double output_deviation = 0;  // deviation of W_2's initial values
  kernels::Activation activation = kernels::Activation::sigmoid_gelu;
  bool biased = true;    // W_1 and W_2 have biases
  Dropout dropout = {};  // dropout of f's output

  // Outputs of W_1: two per element of f's output if f has a gate.
  std::int64_t inner_outputs() const { return kernels::inputs_of(activation) * inner_width; }
};

class FeedForwardBranch : public Branch {
 public:
  // Parameters: `name`.inner.*, `name`.outer.*
  FeedForwardBranch(ParameterSet& parameters, const std::string& name, const FeedForwardBranchConfig& config);

  void forward(Context& ctx, const Tensor& normed, const BranchOutput& out, Tape* tape) const override;
  bool adds_residual() const override { return true; }
  Tensor output_bias_gradient() const override { return outer_.bias_gradient(); }
  const Parameter& gradients_final_from() const override { return inner_.weight(); }
  void backward(Context& ctx, const Tensor& dout, const Tensor& dnormed, Tape& tape) const override;

  const Linear& inner() const { return inner_; }
  const Linear& outer() const { return outer_; }

 private:
  bool is_relu() const { return config_.activation == kernels::Activation::relu; }
  // True if the product's own epilogue computes f.
  bool fused(const Context& ctx) const {
    const bool has_epilogue = is_relu() || config_.activation == kernels::Activation::sigmoid_gelu;
    return has_epilogue && config_.biased && config_.dropout.p_in(ctx) == 0;
  }

  FeedForwardBranchConfig config_;
  Linear inner_;
  Linear outer_;
};

}  // namespace longstride
