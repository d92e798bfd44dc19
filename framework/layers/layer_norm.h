// y = (x - mean) / sqrt(var + eps) * gain + bias over the last dimension (Ba et al. 2016); eps = 1e-5.
#pragma once
#include <string>

#include "framework/core/parameters.h"
#include "framework/layers/layer.h"

namespace longstride {

class LayerNorm : public Layer {
 public:
  static constexpr float epsilon = 1e-5f;

  // Declares `name`.weight, ones, and `name`.bias, zeros.
  LayerNorm(ParameterSet& parameters, const std::string& name, std::int64_t width);

  void forward(Context& ctx, const Tensor& x, const Tensor& y, Tape* tape) const override;
  void backward(Context& ctx, const Tensor& dy, const Tensor& dx, Tape& tape) const override;
  // dx += instead of dx =: the gradient of x + f(norm(x)), where dx already holds the first term's.
  void backward_into(Context& ctx, const Tensor& dy, const Tensor& dx, Tape& tape) const;

 private:
  void backward(Context& ctx, const Tensor& dy, const Tensor& dx, bool add, Tape& tape) const;
  Parameter& gain_;
  Parameter& bias_;
};

}  // namespace longstride
