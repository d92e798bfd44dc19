#include "framework/ops/basic.h"

#include "framework/ops/dispatch.h"
#include "kernels/copy_rows/copy_rows.h"
#include "kernels/elementwise/elementwise.h"

namespace longstride::ops {
namespace {

void add_up(Context& ctx, const Tensor& x, bool squares, const Tensor& total) {
  check_contiguous(x, "x");
  LONGSTRIDE_CHECK(computes(ctx, x.dtype()), "x is {}", kernels::name_of(x.dtype()));
  check_vector(total, 1, Dtype::f64, "total");
  Scratch scratch(ctx);
  const Tensor partials = scratch.tensor({kernels::SumArgs::chunks(x.count())}, Dtype::f64);
  if (ctx.planning()) return;
  launch(ctx, kernels::cpu::sum, kernels::cuda::sum, {x.view(), total.view(), partials.view(), squares});
}

}  // namespace

void fill_zero(Context& ctx, const Tensor& x) {
  check_contiguous(x, "x");
  if (ctx.planning()) return;
  launch(ctx, kernels::cpu::fill_zero, kernels::cuda::fill_zero, {x.view()});
}

void copy(Context& ctx, const Tensor& from, const Tensor& to) {
  check_contiguous(from, "from");
  const bool converts = computes(ctx, from.dtype()) && computes(ctx, to.dtype()) && ctx.device != Device::cpu;
  check_vector(to, from.count(), converts ? to.dtype() : from.dtype(), "to");
  if (ctx.planning()) return;
  launch(ctx, kernels::cpu::copy, kernels::cuda::copy, {from.view(), to.view()});
}

void add(Context& ctx, const Tensor& a, const Tensor& b, const Tensor& y) {
  check_contiguous(a, "a");
  LONGSTRIDE_CHECK(computes(ctx, a.dtype()), "a is {}", kernels::name_of(a.dtype()));
  check_vector(b, a.count(), a.dtype(), "b");
  check_vector(y, a.count(), a.dtype(), "y");
  if (ctx.planning()) return;
  launch(ctx, kernels::cpu::add, kernels::cuda::add, {a.view(), b.view(), y.view()});
}

void sum(Context& ctx, const Tensor& x, const Tensor& total) { add_up(ctx, x, false, total); }

void sum_of_squares(Context& ctx, const Tensor& x, const Tensor& total) { add_up(ctx, x, true, total); }

namespace {

// (rows, groups x width) seen as (groups, rows, width).
kernels::View grouped(const Tensor& joined, const Tensor& split) {
  LONGSTRIDE_CHECK(joined.rank() == 2 && split.rank() == 3 && joined.size(0) == split.size(1) &&
                       joined.size(1) == split.size(0) * split.size(2) && joined.stride(1) == 1 &&
                       split.stride(2) == 1 && joined.dtype() == split.dtype(),
                   "columns of {} as {}", joined.shape().text(), split.shape().text());
  kernels::View v = split.view();
  v.data = joined.data();
  v.stride[0] = split.size(2);
  v.stride[1] = joined.stride(0);
  v.stride[2] = 1;
  return v;
}

}  // namespace

void split_columns(Context& ctx, const Tensor& joined, const Tensor& split) {
  const kernels::CopyRowsArgs args{grouped(joined, split), split.view()};
  if (!ctx.planning()) launch(ctx, kernels::cpu::copy_rows, kernels::cuda::copy_rows, args);
}

void join_columns(Context& ctx, const Tensor& split, const Tensor& joined) {
  const kernels::CopyRowsArgs args{split.view(), grouped(joined, split)};
  if (!ctx.planning()) launch(ctx, kernels::cpu::copy_rows, kernels::cuda::copy_rows, args);
}

}  // namespace longstride::ops
