#include "framework/layers/heads/row.h"

#include "framework/ops/basic.h"
#include "kernels/copy_rows/copy_rows.h"
#include "kernels/mean_rows/mean_rows.h"

namespace longstride {
namespace {

// Where the first document of every row ends: (batch); absent: with the row.
Tensor ends_of(const Context& ctx) {
  const Tensor& end = ctx.documents.end;
  return end.given() ? end.reshape({end.size(0), end.size(2)}).slice(1, 0, 1) : Tensor{};
}

}  // namespace

Tensor RowHead::row_of(Context& ctx, const Tensor& hidden, Scratch& scratch) const {
  const Tensor row = scratch.tensor({hidden.size(0), 1, hidden.size(2)}, hidden.dtype());
  if (of_ == RowOf::first)
    ops::run(ctx, kernels::CopyRowsArgs{hidden.slice(1, 0, 1), row});
  else
    ops::run(ctx, kernels::MeanRowsArgs{hidden, ends_of(ctx), row});
  return row;
}

void RowHead::losses(Context& ctx, const Tensor& hidden, const Asked& asked, const Tensor& losses,
                     const Tensor& right) const {
  Scratch scratch(ctx);
  choice_.losses(ctx, row_of(ctx, hidden, scratch), asked, losses, right);
}

void RowHead::scores(Context& ctx, const Tensor& hidden, const Tensor& scores) const {
  Scratch scratch(ctx);
  choice_.scores(ctx, row_of(ctx, hidden, scratch), scores);
}

void RowHead::loss_and_gradients(Context& ctx, const Tensor& hidden, const Asked& asked, double scale,
                                 const Tensor& losses, const Tensor& dhidden) const {
  Scratch scratch(ctx);
  const Tensor row = row_of(ctx, hidden, scratch), drow = scratch.like(row);
  choice_.loss_and_gradients(ctx, row, asked, scale, losses, drow);
  if (of_ == RowOf::mean) return ops::run(ctx, kernels::MeanRowsBackwardArgs{drow, ends_of(ctx), dhidden});
  ops::fill_zero(ctx, dhidden);
  ops::run(ctx, kernels::CopyRowsArgs{drow, dhidden.slice(1, 0, 1)});
}

}  // namespace longstride
