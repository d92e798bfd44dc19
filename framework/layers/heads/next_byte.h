// A choice at every position, the next byte of a decoder (Eq. 14):
//   logits = dropout(hidden) W_out^T + b, loss = -log softmax(logits)[target]
#pragma once
#include <string>

#include "framework/layers/dropout.h"
#include "framework/layers/heads/head.h"
#include "framework/ops/cross_entropy.h"

namespace longstride {

struct NextByteConfig {
  std::int64_t vocabulary = 0, width = 0;
  double deviation = 0;  // standard deviation of the initial weight
  bool biased = false;
  double dropout = 0;
};

class NextByteHead final : public Head {
 public:
  // Declares `name`.weight (vocabulary, width), unless the token table `tied` takes its place, and `name`.bias.
  NextByteHead(ParameterSet& parameters, const std::string& name, const NextByteConfig& config, Parameter* tied);

  void losses(Context& ctx, const Tensor& hidden, const Asked& asked, const Tensor& losses,
              const Tensor& right = {}) const override;
  void loss_and_gradients(Context& ctx, const Tensor& hidden, const Asked& asked, double scale, const Tensor& losses,
                          const Tensor& dhidden) const override;
  Shape scores_shape(std::int64_t positions) const override { return {positions, weight_->shape[0]}; }
  void scores(Context& ctx, const Tensor& hidden, const Tensor& scores) const override;
  // In the compute type or the exact one: (rows, vocabulary).
  void logits(Context& ctx, const Tensor& hidden, const Tensor& logits) const;
  // The gradients of what `dlogits`, (rows, vocabulary) of hidden's type, is the gradient of.
  void backward_logits(Context& ctx, const Tensor& hidden, const Tensor& dlogits, const Tensor& dhidden) const;
  const Parameter& weight() const { return *weight_; }
  const Dropout& dropout() const { return dropout_; }

 private:
  ops::CrossEntropy cross_entropy(const Tensor& hidden, const Asked& asked, const Tensor& losses) const;
  Tensor bias() const { return bias_ != nullptr ? bias_->master : Tensor{}; }

  bool tied_;
  Parameter* weight_;
  Parameter* bias_;  // null without one
  Dropout dropout_;
};

}  // namespace longstride
