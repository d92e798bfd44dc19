// y = (x - mean) / sqrt(var + eps) * gain + bias over the last dimension (Ba et al. 2016); eps = 1e-5.
#pragma once
#include <string>

#include "framework/core/context.h"
#include "framework/core/parameters.h"

namespace longstride {

// What happens to a branch's output before the stream takes it up: dropout, told from all others of the model by its
// id.
struct AfterBranch {
  float dropout = 0;
  std::uint32_t dropout_id = 0;
};

class LayerNorm {
 public:
  static constexpr float epsilon = 1e-5f;

  // Declares `name`.weight, ones, and `name`.bias, zeros.
  LayerNorm(ParameterSet& parameters, const std::string& name, std::int64_t width);

  // y of the compute type, x of the stream's. With a tape, x must stay valid until backward.
  void forward(Context& ctx, const Tensor& x, const Tensor& y, Tape* tape) const;
  // sum = residual + dropout(branch) and y = norm(sum), in one pass; sum may be residual.
  void forward_after(Context& ctx, const Tensor& branch, const Tensor& residual, const AfterBranch& after,
                     const Tensor& sum, const Tensor& y, Tape* tape) const;

  // dx = the gradient of x, or dx += when `add` (dx then holds the gradient that reaches x past the branches).
  // With `below`, in the same pass, dbranch = the gradient of the branch whose dropped-out output the sum x took up,
  // which may be dy, and branch_sums += its column sums.
  void backward_before(Context& ctx, const Tensor& dy, const Tensor& dx, bool add, const AfterBranch* below,
                       const Tensor& dbranch, const Tensor& branch_sums, Tape& tape) const;

 private:
  Parameter& gain_;
  Parameter& bias_;
};

}  // namespace longstride
