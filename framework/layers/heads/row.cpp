#include "framework/layers/heads/row.h"

#include "framework/ops/basic.h"
#include "kernels/binary_loss/binary_loss.h"
#include "kernels/copy_rows/copy_rows.h"
#include "kernels/mean_rows/mean_rows.h"

namespace longstride {
Tensor RowHead::row_of(Context& ctx, const Tensor& hidden, Scratch& scratch) const {
  const Tensor row = scratch.tensor({hidden.size(0), 1, hidden.size(2)}, hidden.dtype());
  if (of_ == RowOf::first)
    ops::run(ctx, kernels::CopyRowsArgs{hidden.slice(1, 0, 1), row});
  else
    ops::run(ctx, kernels::MeanRowsArgs{hidden, ends_of_first(ctx), row});
  return row;
}

void RowHead::losses(Context& ctx, const Tensor& hidden, const Asked& asked, const Tensor& losses,
                     const Tensor& right) const {
  Scratch scratch(ctx);
  const Tensor row = row_of(ctx, hidden, scratch);
  if (answers_ == RowAnswers::one) return choice_.losses(ctx, row, asked, losses, right);
  const Tensor logits = scratch.tensor(losses.shape(), losses.dtype());
  choice_.logits(ctx, row, logits);
  each_loss(ctx, logits, asked, losses, right, 1, {});
}

void RowHead::each_loss(Context& ctx, const Tensor& logits, const Asked& asked, const Tensor& losses,
                        const Tensor& right, double scale, const Tensor& dlogits) const {
  ops::run(ctx, kernels::BinaryLossArgs{.logits = logits,
                                        .targets = asked.targets,
                                        .losses = losses,
                                        .gradient = dlogits,
                                        .scale = scale,
                                        .loss_scale = dlogits.given() ? ctx.loss_scale : nullptr,
                                        .weights = asked.weights,
                                        .right = right});
}

void RowHead::scores(Context& ctx, const Tensor& hidden, const Tensor& scores) const {
  Scratch scratch(ctx);
  choice_.logits(ctx, row_of(ctx, hidden, scratch), scores.reshape({hidden.size(0), scores.count() / hidden.size(0)}));
}

void RowHead::loss_and_gradients(Context& ctx, const Tensor& hidden, const Asked& asked, double scale,
                                 const Tensor& losses, const Tensor& dhidden) const {
  Scratch scratch(ctx);
  const Tensor row = row_of(ctx, hidden, scratch), drow = scratch.like(row);
  if (answers_ == RowAnswers::one) {
    choice_.loss_and_gradients(ctx, row, asked, scale, losses, drow);
  } else {
    const Tensor logits = scratch.tensor(losses.shape(), losses.dtype()),
                 dlogits = scratch.tensor(losses.shape(), hidden.dtype());
    choice_.dropout().apply(ctx, row);
    choice_.logits(ctx, row, logits);
    each_loss(ctx, logits, asked, losses, {}, scale, dlogits);
    choice_.backward_logits(ctx, row, dlogits, drow);
    choice_.dropout().apply(ctx, drow);
  }
  if (of_ == RowOf::mean) return ops::run(ctx, kernels::MeanRowsBackwardArgs{drow, ends_of_first(ctx), dhidden});
  ops::fill_zero(ctx, dhidden);
  ops::run(ctx, kernels::CopyRowsArgs{drow, dhidden.slice(1, 0, 1)});
}

}  // namespace longstride
