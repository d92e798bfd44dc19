#include "framework/layers/layer_norm.h"

#include "framework/ops/normalise.h"

namespace longstride {

LayerNorm::LayerNorm(ParameterSet& parameters, const std::string& name, std::int64_t width)
    : gain_(parameters.add(name + ".weight", {width}, {0, 1})), bias_(parameters.add(name + ".bias", {width}, {})) {}

void LayerNorm::forward(Context& ctx, const Tensor& x, const Tensor& y, Tape* tape) const {
  Tensor mean, rstd;
  if (tape != nullptr) {
    const Shape rows = {x.count() / x.size(-1)};
    mean = tape->tensor(rows, ctx.residual);
    rstd = tape->tensor(rows, ctx.residual);
    tape->push(x);
    tape->push(mean);
    tape->push(rstd);
  }
  ops::layer_norm(ctx, x, gain_.master, bias_.master, epsilon, y, mean, rstd);
}

void LayerNorm::backward(Context& ctx, const Tensor& dy, const Tensor& dx, bool add, Tape& tape) const {
  const Tensor rstd = tape.pop();
  const Tensor mean = tape.pop();
  const Tensor x = tape.pop();
  ops::layer_norm_backward(ctx, dy, x, gain_.master, mean, rstd, dx, add, gain_.gradient, bias_.gradient);
}

void LayerNorm::backward(Context& ctx, const Tensor& dy, const Tensor& dx, Tape& tape) const {
  backward(ctx, dy, dx, false, tape);
}

void LayerNorm::backward_into(Context& ctx, const Tensor& dy, const Tensor& dx, Tape& tape) const {
  backward(ctx, dy, dx, true, tape);
}

}  // namespace longstride
