// y = x W^T + b, W (out, in), b (out).
#pragma once
#include <string>
#include <vector>

#include "framework/core/context.h"
#include "framework/core/parameters.h"

namespace longstride {

class Linear {
 public:
  // Declares `name`.weight, normal with this standard deviation, and `name`.bias, zero.
  Linear(ParameterSet& parameters, const std::string& name, std::int64_t in, std::int64_t out, double deviation);
  // The same of several linear maps of one input, of so many outputs each, as one.
  Linear(ParameterSet& parameters, const std::string& name, std::int64_t in, const std::vector<std::int64_t>& outs,
         double deviation);

  void apply(Context& ctx, const Tensor& x, const Tensor& y) const;
  void apply_gelu(Context& ctx, const Tensor& x, const Tensor& pre, const Tensor& y) const;
  void gradients(Context& ctx, const Tensor& x, const Tensor& dy, const Tensor& dx) const;
  // The gradient of the bias is the column sums of dy, and a pass over dy of its own unless who computes dy adds it
  // too.
  Tensor bias_gradient() const { return bias_.gradient; }
  void gradients_but_bias(Context& ctx, const Tensor& x, const Tensor& dy, const Tensor& dx) const;
  // gradients_but_bias where x = gelu(pre) and pre is what `below` gave: dpre instead of dx, and below's bias gradient.
  void gradients_through_gelu(Context& ctx, const Tensor& x, const Tensor& pre, const Tensor& dy, const Tensor& dpre,
                              const Linear& below) const;

  const Parameter& weight() const { return weight_; }
  std::int64_t in() const { return weight_.shape[1]; }
  std::int64_t out() const { return weight_.shape[0]; }

 private:
  Parameter& weight_;
  Parameter& bias_;
};

}  // namespace longstride
