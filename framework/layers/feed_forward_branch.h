// out = W_2 f(W_1 normed + b_1) + b_2, f(z) = z sigmoid(1.702 z): the inside of b(H)'s dropout (Eq. 13).
#pragma once
#include <string>

#include "framework/layers/branch.h"
#include "framework/layers/linear.h"

namespace longstride {

struct FeedForwardBranchConfig {
  std::int64_t width = 0, inner_width = 0;
  double inner_deviation = 0;   // of W_1
  double output_deviation = 0;  // of W_2
};

class FeedForwardBranch : public Branch {
 public:
  // Parameters: `name`.inner.*, `name`.outer.*
  FeedForwardBranch(ParameterSet& parameters, const std::string& name, const FeedForwardBranchConfig& config);

  void forward(Context& ctx, const Tensor& normed, const Tensor& out, Tape* tape) const override;
  Tensor output_bias_gradient() const override { return outer_.bias().gradient; }
  const Parameter& gradients_final_from() const override { return inner_.weight(); }
  void backward(Context& ctx, const Tensor& dout, const Tensor& dnormed, Tape& tape) const override;

  const Linear& inner() const { return inner_; }
  const Linear& outer() const { return outer_; }

 private:
  FeedForwardBranchConfig config_;
  Linear inner_;
  Linear outer_;
};

}  // namespace longstride
