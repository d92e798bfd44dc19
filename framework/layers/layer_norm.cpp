#include "framework/layers/layer_norm.h"

#include "framework/ops/normalise.h"

namespace longstride {

namespace {

struct Saved {
  Tensor mean, rstd;
};

Saved save(const Context& ctx, const Tensor& x, Tape* tape) {
  if (tape == nullptr) return {};
  const Shape rows = {x.count() / x.size(-1)};
  const Saved saved{tape->tensor(rows, ctx.residual), tape->tensor(rows, ctx.residual)};
  tape->push(x);
  tape->push(saved.mean);
  tape->push(saved.rstd);
  return saved;
}

}  // namespace

LayerNorm::LayerNorm(ParameterSet& parameters, const std::string& name, std::int64_t width)
    : gain_(parameters.add(name + ".weight", {width}, {0, 1})), bias_(parameters.add(name + ".bias", {width}, {})) {}

void LayerNorm::forward(Context& ctx, const Tensor& x, const Tensor& y, Tape* tape) const {
  const Saved saved = save(ctx, x, tape);
  ops::layer_norm(ctx, x, gain_.master, bias_.master, epsilon, y, saved.mean, saved.rstd);
}

void LayerNorm::forward_after(Context& ctx, const Tensor& branch, const Tensor& residual, const AfterBranch& after,
                              const Tensor& sum, const Tensor& y, Tape* tape) const {
  const Saved saved = save(ctx, sum, tape);
  ops::dropout_add_layer_norm(ctx, branch, residual, after.dropout, after.dropout_id, sum, gain_.master, bias_.master,
                              epsilon, y, saved.mean, saved.rstd);
}

void LayerNorm::backward_before(Context& ctx, const Tensor& dy, const Tensor& dx, bool add, const AfterBranch* below,
                                const Tensor& dbranch, const Tensor& branch_sums, Tape& tape) const {
  const Tensor rstd = tape.pop();
  const Tensor mean = tape.pop();
  const Tensor x = tape.pop();
  if (below == nullptr)
    ops::layer_norm_backward(ctx, dy, x, gain_.master, mean, rstd, dx, add, gain_.gradient, bias_.gradient);
  else
    ops::layer_norm_backward_dropout(ctx, dy, x, gain_.master, mean, rstd, dx, add, gain_.gradient, bias_.gradient,
                                     below->dropout, below->dropout_id, dbranch, branch_sums);
}

}  // namespace longstride
