// y = x W^T + b, W (out, in), b (out); or without b.
#pragma once
#include <string>
#include <vector>

#include "framework/core/context.h"
#include "framework/core/parameters.h"

namespace longstride {

class Linear {
 public:
  // Declares `name`.weight, normal with this standard deviation, and `name`.bias, zero, if it is `biased`.
  Linear(ParameterSet& parameters, const std::string& name, std::int64_t in, std::int64_t out, double deviation,
         bool biased = true);
  // Several linear maps of one input, stacked in one matrix; `outs` are their output sizes.
  Linear(ParameterSet& parameters, const std::string& name, std::int64_t in, const std::vector<std::int64_t>& outs,
         double deviation, bool biased = true);

  // It starts with the numbers of another's, from that one's output `first` on.
  void start_like(const Linear& other, std::int64_t first) const;

  // y = x W^T + b, + residual if given; that may not be y.
  void apply(Context& ctx, const Tensor& x, const Tensor& y, const Tensor& residual = {}) const;
  // With a bias alone.
  void apply_gelu(Context& ctx, const Tensor& x, const Tensor& pre, const Tensor& y) const;
  void apply_relu(Context& ctx, const Tensor& x, const Tensor& y) const;
  // The bias gradient is the column sum of dy. Computing it here costs an extra pass over dy, so where the kernel that
  // produces dy can accumulate it into bias_gradient(), call gradients_but_bias.
  // addend: added to dx, if given; it may not be dx.
  void gradients(Context& ctx, const Tensor& x, const Tensor& dy, const Tensor& dx, const Tensor& addend = {}) const;
  void gradients_but_bias(Context& ctx, const Tensor& x, const Tensor& dy, const Tensor& dx) const;
  // The part of the bias gradient that belongs to columns [begin, end) of dy.
  void bias_gradient_of(Context& ctx, const Tensor& dy, std::int64_t begin, std::int64_t end) const;
  // Overwrites sums (in) with the column sums of dx, which follow from the bias gradient: over the same micro-batches
  // as that has accumulated so far.
  void column_sums_of_dx(Context& ctx, const Tensor& sums) const;
  // gradients_but_bias for x = gelu(pre), where pre is the output of `below`: writes dpre instead of dx and accumulates
  // below's bias gradient.
  void gradients_through_gelu(Context& ctx, const Tensor& x, const Tensor& pre, const Tensor& dy, const Tensor& dpre,
                              const Linear& below) const;
  // The same for x = max(pre, 0).
  void gradients_through_relu(Context& ctx, const Tensor& x, const Tensor& dy, const Tensor& dpre,
                              const Linear& below) const;

  const Parameter& weight() const { return weight_; }
  // Absent without a bias.
  Tensor bias() const { return bias_ == nullptr ? Tensor{} : bias_->value; }
  Tensor bias_gradient() const { return bias_ == nullptr ? Tensor{} : bias_->gradient; }
  std::int64_t in() const { return weight_.shape[1]; }
  std::int64_t out() const { return weight_.shape[0]; }

 private:
  Parameter& weight_;
  Parameter* bias_ = nullptr;
};

}  // namespace longstride
