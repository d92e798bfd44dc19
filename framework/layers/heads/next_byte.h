// The head of a decoder: logits = dropout(hidden) W_out^T + b, loss = -log softmax(logits)[next byte]  (Eq. 14).
#pragma once
#include <string>

#include "framework/core/parameters.h"
#include "framework/layers/dropout.h"
#include "framework/ops/cross_entropy.h"

namespace longstride {

struct NextByteConfig {
  std::int64_t vocabulary = 0, width = 0;
  double deviation = 0;  // standard deviation of the initial weight
  bool biased = false;
  double dropout = 0;
};

class NextByteHead {
 public:
  // Declares `name`.weight (vocabulary, width), unless the token table `tied` takes its place, and `name`.bias.
  NextByteHead(ParameterSet& parameters, const std::string& name, const NextByteConfig& config, Parameter* tied);

  // Targets and weights of the positions: (batch, positions); without weights each has 1.
  struct Asked {
    Tensor targets, weights;
  };
  // hidden (batch, positions, width), losses (batch, positions) of the exact type.
  void losses(Context& ctx, const Tensor& hidden, const Asked& asked, const Tensor& losses) const;
  // The same with dropout, which overwrites hidden; dhidden becomes the gradient of scale * sum of losses.
  void loss_and_gradients(Context& ctx, const Tensor& hidden, const Asked& asked, double scale, const Tensor& losses,
                          const Tensor& dhidden) const;
  void logits(Context& ctx, const Tensor& hidden, const Tensor& logits) const;
  const Parameter& weight() const { return *weight_; }

 private:
  ops::CrossEntropy cross_entropy(const Tensor& hidden, const Asked& asked, const Tensor& losses) const;
  Tensor bias() const { return bias_ != nullptr ? bias_->master : Tensor{}; }

  bool tied_;
  Parameter* weight_;
  Parameter* bias_;  // null without one
  Dropout dropout_;
};

}  // namespace longstride
