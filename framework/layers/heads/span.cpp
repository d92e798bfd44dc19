#include "framework/layers/heads/span.h"

#include "framework/ops/run.h"
#include "kernels/copy_rows/copy_rows.h"
#include "kernels/span_loss/span_loss.h"

namespace longstride {

Tensor SpanHead::logits(Context& ctx, const Tensor& hidden, Scratch& scratch) const {
  const Tensor logits = scratch.tensor({hidden.size(0), hidden.size(1), 2}, ctx.exact);
  Context plain = ctx.without_fp8();
  scores_.logits(plain, hidden, logits.reshape({hidden.size(0) * hidden.size(1), 2}));
  return logits;
}

void SpanHead::losses(Context& ctx, const Tensor& hidden, const Asked& asked, const Tensor& losses,
                      const Tensor& right) const {
  Scratch scratch(ctx);
  ops::run(ctx, kernels::SpanLossArgs{.logits = logits(ctx, hidden, scratch),
                                      .end = ends_of_first(ctx),
                                      .targets = asked.targets,
                                      .losses = losses,
                                      .weights = asked.weights,
                                      .right = right});
}

void SpanHead::loss_and_gradients(Context& ctx, const Tensor& hidden, const Asked& asked, double scale,
                                  const Tensor& losses, const Tensor& dhidden) const {
  Scratch scratch(ctx);
  scores_.dropout().apply(ctx, hidden);
  const Tensor x = logits(ctx, hidden, scratch), dx = scratch.tensor(x.shape(), hidden.dtype());
  ops::run(ctx, kernels::SpanLossArgs{.logits = x,
                                      .end = ends_of_first(ctx),
                                      .targets = asked.targets,
                                      .losses = losses,
                                      .gradient = dx,
                                      .scale = scale,
                                      .loss_scale = ctx.loss_scale,
                                      .weights = asked.weights});
  scores_.backward_logits(ctx, hidden, dx.reshape({x.size(0) * x.size(1), 2}), dhidden);
  scores_.dropout().apply(ctx, dhidden);
}

// A row per choice, of which each has all positions.
void SpanHead::scores(Context& ctx, const Tensor& hidden, const Tensor& scores) const {
  Scratch scratch(ctx);
  const Tensor x = logits(ctx, hidden, scratch);
  const std::int64_t batch = x.size(0), positions = x.size(1);
  for (std::int64_t choice = 0; choice < 2; ++choice)
    ops::run(ctx, kernels::CopyRowsArgs{x.slice(2, choice, choice + 1),
                                        scores.reshape({batch, 2 * positions})
                                            .slice(1, choice * positions, (choice + 1) * positions)
                                            .split_last(positions, 1)});
}

}  // namespace longstride
