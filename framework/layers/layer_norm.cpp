#include "framework/layers/layer_norm.h"

#include "framework/ops/run.h"

namespace longstride {

namespace {

struct Saved {
  Tensor mean, rstd;
};

Saved save(const Context& ctx, const Tensor& x, Tape* tape) {
  if (tape == nullptr) return {};
  const Shape rows = {x.count() / x.size(-1)};
  const Saved saved{tape->tensor(rows, ctx.exact), tape->tensor(rows, ctx.exact)};
  tape->push(x);
  tape->push(saved.mean);
  tape->push(saved.rstd);
  return saved;
}

}  // namespace

LayerNorm::LayerNorm(ParameterSet& parameters, const std::string& name, std::int64_t width)
    : gain_(parameters.add(name + ".weight", {width}, {0, 1})), bias_(parameters.add(name + ".bias", {width}, {})) {}

kernels::LayerNormArgs LayerNorm::args(const Context& ctx, const Tensor& x, const Tensor& y, Tape* tape) const {
  const Saved saved = save(ctx, x, tape);
  return {.x = x.rows(),
          .gain = gain_.master,
          .bias = bias_.master,
          .y = y.rows(),
          .mean = saved.mean,
          .rstd = saved.rstd,
          .epsilon = epsilon};
}

void LayerNorm::forward(Context& ctx, const Tensor& x, const Tensor& y, Tape* tape) const {
  ops::run(ctx, args(ctx, x, y, tape));
}

void LayerNorm::forward_after(Context& ctx, const BranchSum& add, const Tensor& y, Tape* tape) const {
  kernels::DropoutArgs dropped = add.after.args(ctx, add.branch, add.sum);
  dropped.residual = add.residual;
  ops::run(ctx, kernels::DropoutAddLayerNormArgs{args(ctx, add.sum, y, tape), dropped});
}

void LayerNorm::backward_before(Context& ctx, const Tensor& dy, const Tensor& dx, kernels::HeldGradient held,
                                const BranchGradient* below, Tape& tape) const {
  const Tensor rstd = tape.pop(), mean = tape.pop(), x = tape.pop();
  const kernels::LayerNormBackwardArgs norm{.dy = dy.rows(),
                                            .x = x.rows(),
                                            .gain = gain_.master,
                                            .mean = mean,
                                            .rstd = rstd,
                                            .dx = dx.rows(),
                                            .held = held,
                                            .dgain = gain_.gradient,
                                            .dbias = bias_.gradient};
  if (below == nullptr) return ops::run(ctx, norm);
  ops::run(ctx, kernels::LayerNormBackwardDropoutArgs{norm, below->after.args(ctx, dx, below->output), below->sums});
}

}  // namespace longstride
