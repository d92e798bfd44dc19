#include "framework/layers/contrast.h"

#include "framework/ops/basic.h"
#include "kernels/copy_rows/copy_rows.h"
#include "kernels/group_contrast/group_contrast.h"

namespace longstride {

Contrast::Contrast(ParameterSet& parameters, const std::string& name, std::int64_t rows, std::int64_t width,
                   double deviation, double coefficient, const Parameter& tokens)
    : map_(parameters, name, width, width, deviation, true), rows_(rows), coefficient_(coefficient), tokens_(tokens) {
  for (Parameter& p : parameters.all())
    if (p.name.starts_with(name + ".")) p.may_be_new = true;
}

void Contrast::add(Context& outer, const Batch& batch, const Tensor& hidden, const Tensor& total,
                   const Tensor& d) const {
  Context ctx = outer.without_fp8();
  Scratch scratch(ctx);
  const Tensor h = scratch.tensor({hidden.size(0), rows_, hidden.size(2)}, hidden.dtype()), z = scratch.like(h),
               dz = scratch.like(h), dh = scratch.like(h), e = scratch.tensor(h.shape(), ctx.exact),
               losses = scratch.tensor({h.size(0), rows_}, ctx.exact);
  ops::run(ctx, kernels::CopyRowsArgs{hidden.slice(1, 0, rows_), h});
  map_.apply(ctx, h, z);
  ops::run(ctx,
           kernels::GroupContrastArgs{.groups = batch.sentences,
                                      .end = ctx.documents.end,
                                      .targets = batch.targets,
                                      .weights = batch.weights,
                                      .table = tokens_.master,
                                      .z = z,
                                      .e = e,
                                      .losses = losses,
                                      .dz = dz,
                                      .scale = coefficient_ * ctx.auxiliary.share / static_cast<double>(batch.rows()),
                                      .loss_scale = ctx.loss_scale});
  ops::sum(ctx, losses, total);
  map_.gradients(ctx, h, dz, dh);
  ops::run(ctx, kernels::CopyRowsArgs{dh, d.slice(1, 0, rows_)});
}

}  // namespace longstride
