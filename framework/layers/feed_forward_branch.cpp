#include "framework/layers/feed_forward_branch.h"

#include "framework/ops/basic.h"
#include "framework/ops/normalise.h"

namespace longstride {

FeedForwardBranch::FeedForwardBranch(ParameterSet& parameters, const std::string& name,
                                     const FeedForwardBranchConfig& config)
    : config_(config),
      norm_(parameters, name + "_norm", config.width),
      inner_(parameters, name + ".inner", config.width, config.inner_width, config.inner_deviation),
      outer_(parameters, name + ".outer", config.inner_width, config.width, config.output_deviation) {}

void FeedForwardBranch::forward(Context& ctx, const Tensor& x, const Tensor& y, Tape* tape) const {
  const Shape inner_shape = {x.size(0), x.size(1), config_.inner_width};
  Scratch scratch(ctx);
  const Tensor normed = scratch.tensor(x.shape(), ctx.compute, tape);
  norm_.forward(ctx, x, normed, tape);
  const Tensor active = scratch.tensor(inner_shape, ctx.compute, tape);
  // Without a backward pass nobody reads the sum before the activation: it is computed in place.
  const Tensor pre = tape != nullptr ? tape->tensor(inner_shape, ctx.compute) : active;
  inner_.apply_gelu(ctx, normed, pre, active);
  if (tape != nullptr)
    for (const Tensor& t : {normed, pre, active}) tape->push(t);
  if (!y.given()) return;
  const Tensor out = scratch.tensor(x.shape(), ctx.compute);
  outer_.apply(ctx, active, out);
  ops::dropout_add(ctx, out, x, config_.dropout, config_.dropout_id, y);
}

void FeedForwardBranch::backward(Context& ctx, const Tensor& dy, const Tensor& dx, Tape& tape) const {
  const Tensor active = tape.pop(), pre = tape.pop(), normed = tape.pop();
  Scratch scratch(ctx);
  const Tensor dnormed = scratch.like(normed);
  {
    Scratch inner(ctx);
    const Tensor dpre = inner.like(pre);
    {
      Scratch innermost(ctx);
      const Tensor dout = innermost.tensor(dy.shape(), ctx.compute);
      ops::dropout_backward(ctx, dy, config_.dropout, config_.dropout_id, dout);
      outer_.gradients_through_gelu(ctx, active, pre, dout, dpre);
    }
    inner_.gradients(ctx, normed, dpre, dnormed);
  }
  if (dx.data() != dy.data()) ops::copy(ctx, dy, dx);
  norm_.backward_into(ctx, dnormed, dx, tape);
}

}  // namespace longstride
