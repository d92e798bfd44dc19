#include "framework/layers/feed_forward_branch.h"

#include "framework/ops/run.h"

namespace longstride {

FeedForwardBranch::FeedForwardBranch(ParameterSet& parameters, const std::string& name,
                                     const FeedForwardBranchConfig& config)
    : config_(config),
      inner_(parameters, name + ".inner", config.width,
             std::vector<std::int64_t>(static_cast<std::size_t>(kernels::inputs_of(config.activation)),
                                       config.inner_width),
             config.inner_deviation, config.biased),
      outer_(parameters, name + ".outer", config.inner_width, config.width, config.output_deviation, config.biased) {}

void FeedForwardBranch::forward(Context& ctx, const Tensor& normed, const BranchOutput& out, Tape* tape) const {
  const Shape shape = {normed.size(0), normed.size(1), config_.inner_width};
  const Shape before = {normed.size(0), normed.size(1), inner_.out()};
  Scratch scratch(ctx);
  const Tensor active = scratch.tensor(shape, ctx.compute, tape);
  // Without a backward pass the input of the activation is not needed again, so the activation is computed in place if
  // it has one input. ReLU always is: where its output is positive, dropped or not, tells its slope.
  const bool in_place = is_relu() || (tape == nullptr && before == shape);
  const Tensor pre = in_place ? active : scratch.tensor(before, ctx.compute, tape);
  if (fused(ctx)) {
    is_relu() ? inner_.apply_relu(ctx, normed, active) : inner_.apply_gelu(ctx, normed, pre, active);
  } else {
    inner_.apply(ctx, normed, pre);
    ops::run(ctx, kernels::ActivationArgs{config_.activation, pre.rows(), active.rows()});
    config_.dropout.apply(ctx, active);
  }
  if (tape != nullptr)
    for (const Tensor& t : {normed, pre, active}) tape->push(t);
  if (!out.given()) return;
  const auto [to, residual] = out.place();
  outer_.apply(ctx, active, to, residual);
}

void FeedForwardBranch::backward(Context& ctx, const Tensor& dout, const Tensor& dnormed, Tape& tape) const {
  const Tensor active = tape.pop(), pre = tape.pop(), normed = tape.pop();
  Scratch scratch(ctx);
  const Tensor dpre = scratch.like(pre);
  if (fused(ctx)) {
    is_relu() ? outer_.gradients_through_relu(ctx, active, dout, dpre, inner_)
              : outer_.gradients_through_gelu(ctx, active, pre, dout, dpre, inner_);
    return inner_.gradients_but_bias(ctx, normed, dpre, dnormed);
  }
  const Tensor dactive = active.shape() == pre.shape() ? dpre : scratch.like(active);
  outer_.gradients_but_bias(ctx, active, dout, dactive);
  config_.dropout.apply(ctx, dactive);
  ops::run(ctx, kernels::ActivationBackwardArgs{config_.activation, dactive.rows(), pre.rows(), dpre.rows()});
  inner_.gradients(ctx, normed, dpre, dnormed);
}

}  // namespace longstride
