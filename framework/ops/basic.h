// The few element-wise ops that are no part of another.
#pragma once
#include "framework/core/context.h"

namespace longstride::ops {

void fill_zero(Context& ctx, const Tensor& x);                              // any contiguous tensor
void copy(Context& ctx, const Tensor& from, const Tensor& to);              // equal shape; types: see CopyArgs
void add(Context& ctx, const Tensor& a, const Tensor& b, const Tensor& y);  // y = a + b; y may be a or b
void sum(Context& ctx, const Tensor& x, const Tensor& total);               // total (1) f64 += sum of x, fixed order
// split (groups, rows, width) of joined (rows, groups x width), and back; both may be slices of wider rows.
void split_columns(Context& ctx, const Tensor& joined, const Tensor& split);
void join_columns(Context& ctx, const Tensor& split, const Tensor& joined);
void sum_of_squares(Context& ctx, const Tensor& x, const Tensor& total);  // total (1) f64 += sum of x^2, likewise

}  // namespace longstride::ops
