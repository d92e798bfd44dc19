// The head of masked language models (Devlin et al. 2019): a choice at every position behind a layer of its own,
//   logits = norm(f(W hidden + b)) W_out^T + b_out
// whose W_out is the token table if it is tied.
#pragma once
#include <string>

#include "framework/layers/heads/next_byte.h"
#include "framework/layers/layer_norm.h"
#include "framework/layers/linear.h"
#include "kernels/activation/activation.h"

namespace longstride {

class MaskedHead final : public Head {
 public:
  // Declares `name`.dense.*, `name`.norm.*, and what NextByteHead does. An activation of two inputs becomes GELU.
  MaskedHead(ParameterSet& parameters, const std::string& name, const NextByteConfig& config,
             kernels::Activation activation, const TokenTable* tied);

  void losses(Context& ctx, const Tensor& hidden, const Asked& asked, const Tensor& losses,
              const Tensor& right = {}) const override;
  void loss_and_gradients(Context& ctx, const Tensor& hidden, const Asked& asked, double scale, const Tensor& losses,
                          const Tensor& dhidden) const override;
  Shape scores_shape(std::int64_t positions) const override { return output_.scores_shape(positions); }
  void scores(Context& ctx, const Tensor& hidden, const Tensor& scores) const override;

 private:
  Tensor transform(Context& ctx, const Tensor& hidden, Scratch& scratch) const;  // the rows that the output reads

  Linear dense_;
  LayerNorm norm_;
  NextByteHead output_;
  kernels::Activation activation_;
};

}  // namespace longstride
