// y = x + dropout(W_2 f(W_1 norm(x) + b_1) + b_2), f(z) = z sigmoid(1.702 z)          (Eq. 13 and 11)
#pragma once
#include <string>

#include "framework/layers/layer_norm.h"
#include "framework/layers/linear.h"

namespace longstride {

struct FeedForwardBranchConfig {
  std::int64_t width = 0, inner_width = 0;
  double inner_deviation = 0;   // of W_1
  double output_deviation = 0;  // of W_2
  float dropout = 0;
  std::uint32_t dropout_id = 0;
};

// x, y: (batch, seq, width) of the residual type. backward: dx may be dy.
class FeedForwardBranch : public Layer {
 public:
  // Parameters: `name`_norm.*, `name`.inner.*, `name`.outer.*
  FeedForwardBranch(ParameterSet& parameters, const std::string& name, const FeedForwardBranchConfig& config);

  void forward(Context& ctx, const Tensor& x, const Tensor& y, Tape* tape) const override;
  void backward(Context& ctx, const Tensor& dy, const Tensor& dx, Tape& tape) const override;

 private:
  FeedForwardBranchConfig config_;
  LayerNorm norm_;
  Linear inner_;
  Linear outer_;
};

}  // namespace longstride
