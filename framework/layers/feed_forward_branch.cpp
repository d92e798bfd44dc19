#include "framework/layers/feed_forward_branch.h"

namespace longstride {

FeedForwardBranch::FeedForwardBranch(ParameterSet& parameters, const std::string& name,
                                     const FeedForwardBranchConfig& config)
    : config_(config),
      inner_(parameters, name + ".inner", config.width, config.inner_width, config.inner_deviation),
      outer_(parameters, name + ".outer", config.inner_width, config.width, config.output_deviation) {}

void FeedForwardBranch::forward(Context& ctx, const Tensor& normed, const Tensor& out, Tape* tape) const {
  const Shape shape = {normed.size(0), normed.size(1), config_.inner_width};
  Scratch scratch(ctx);
  const Tensor active = scratch.tensor(shape, ctx.compute, tape);
  // Without a backward pass the input of the activation is not needed again, so the activation is computed in place.
  const Tensor pre = tape != nullptr ? tape->tensor(shape, ctx.compute) : active;
  inner_.apply_gelu(ctx, normed, pre, active);
  if (tape != nullptr)
    for (const Tensor& t : {normed, pre, active}) tape->push(t);
  if (out.given()) outer_.apply(ctx, active, out);
}

void FeedForwardBranch::backward(Context& ctx, const Tensor& dout, const Tensor& dnormed, Tape& tape) const {
  const Tensor active = tape.pop(), pre = tape.pop(), normed = tape.pop();
  Scratch scratch(ctx);
  const Tensor dpre = scratch.like(pre);
  outer_.gradients_through_gelu(ctx, active, pre, dout, dpre, inner_);
  inner_.gradients_but_bias(ctx, normed, dpre, dnormed);
}

}  // namespace longstride
