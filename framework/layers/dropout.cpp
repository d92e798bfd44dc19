#include "framework/layers/dropout.h"

#include "framework/ops/run.h"

namespace longstride {

kernels::DropoutArgs Dropout::args(const Context& ctx, const Tensor& x, const Tensor& y) const {
  return {.branch = x,
          .y = y,
          .p = p_in(ctx),
          .seed = ctx.seed,
          .layer = id,
          .step = ctx.step,
          .first_element = ctx.first_row * (x.count() / x.size(0))};
}

void Dropout::apply(Context& ctx, const Tensor& x) const {
  if (p_in(ctx) > 0) ops::run(ctx, args(ctx, x, x));
}

void Dropout::apply_to_shared(Context& ctx, const Tensor& x) const {
  if (p_in(ctx) == 0) return;
  kernels::DropoutArgs shared = args(ctx, x, x);
  shared.first_element = 0;
  ops::run(ctx, shared);
}

}  // namespace longstride
