// y = x W^T + b, W (out, in), b (out).
#pragma once
#include <string>

#include "framework/core/context.h"
#include "framework/core/parameters.h"

namespace longstride {

class Linear {
 public:
  // Declares `name`.weight, normal with this standard deviation, and `name`.bias, zero.
  Linear(ParameterSet& parameters, const std::string& name, std::int64_t in, std::int64_t out, double deviation);

  void apply(Context& ctx, const Tensor& x, const Tensor& y) const;
  void apply_gelu(Context& ctx, const Tensor& x, const Tensor& pre, const Tensor& y) const;
  void gradients(Context& ctx, const Tensor& x, const Tensor& dy, const Tensor& dx) const;
  // The same where x = gelu(pre) and pre is what `below` gave: dpre instead of dx, and the gradient of below's bias.
  void gradients_through_gelu(Context& ctx, const Tensor& x, const Tensor& pre, const Tensor& dy, const Tensor& dpre,
                              const Linear& below) const;
  // Without that of the bias.
  void gradients_but_bias(Context& ctx, const Tensor& x, const Tensor& dy, const Tensor& dx) const;

  std::int64_t in() const { return weight_.shape[1]; }
  std::int64_t out() const { return weight_.shape[0]; }

 private:
  Parameter& weight_;
  Parameter& bias_;
};

}  // namespace longstride
