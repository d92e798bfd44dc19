// The element-wise ops whose arguments need no names.
#pragma once
#include "framework/ops/run.h"
#include "kernels/elementwise/elementwise.h"

namespace longstride::ops {

inline void fill_zero(Context& ctx, const Tensor& x) { run(ctx, kernels::FillZeroArgs{x}); }
inline void copy(Context& ctx, const Tensor& from, const Tensor& to) { run(ctx, kernels::CopyArgs{from, to}); }
// total (1) f64 += the sum of x, or of x^2.
inline void sum(Context& ctx, const Tensor& x, const Tensor& total) { run(ctx, kernels::SumArgs{x, total}); }
inline void sum_of_squares(Context& ctx, const Tensor& x, const Tensor& total) {
  run(ctx, kernels::SumArgs{.x = x, .total = total, .squares = true});
}

}  // namespace longstride::ops
