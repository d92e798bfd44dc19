// What every op does around its kernel: fold the leading dimensions into rows, check, and choose the device.
#pragma once
#include <utility>

#include "framework/core/context.h"
#include "framework/core/errors.h"
#include "framework/ops/cost.h"
#include "kernels/base/row_chunks.h"

namespace longstride::ops {

template <class Args>
using Kernel = void (*)(const Args&, const kernels::Launch&);

template <class Args>
void launch(const Context& ctx, Kernel<Args> on_cpu, Kernel<Args> on_cuda, const Args& args) {
  const kernels::MeteredRange range(ctx.launch, cost(args));
  (ctx.device == Device::cpu ? on_cpu : on_cuda)(args, ctx.launch);
}

// All dimensions but the last folded into one: (rows, width). Needs a dense last dimension and leading dimensions that
// are equally spaced, as in any contiguous tensor and in a slice of the last dimension of one.
inline kernels::View fold(const Tensor& t, const char* name) {
  LONGSTRIDE_CHECK(t.given(), "{} is absent", name);
  LONGSTRIDE_CHECK(t.size(-1) == 1 || t.stride(-1) == 1, "{} {} has a strided last dimension", name, t.shape().text());
  const int last = t.rank() - 1;
  kernels::View v = t.view();
  v.rank = 2;
  v.size[1] = t.size(last);
  v.stride[1] = 1;
  v.size[0] = 1;
  v.stride[0] = v.size[1];
  bool spaced = false;
  for (int d = last - 1; d >= 0; --d) {
    if (t.size(d) == 1) continue;
    LONGSTRIDE_CHECK(!spaced || t.stride(d) == v.stride[0] * v.size[0], "{} {} does not fold into rows", name,
                     t.shape().text());
    if (!spaced) v.stride[0] = t.stride(d);
    spaced = true;
    v.size[0] *= t.size(d);
  }
  return v;
}

inline kernels::View transposed(kernels::View v) {
  std::swap(v.size[v.rank - 2], v.size[v.rank - 1]);
  std::swap(v.stride[v.rank - 2], v.stride[v.rank - 1]);
  return v;
}

// What the CPU computes in.
inline bool computes(Dtype dtype) { return dtype == Dtype::f32 || dtype == Dtype::f64; }
// What the device of ctx computes in. On a GPU f32 may stand beside a 16-bit type; on the CPU one op has one type.
inline bool computes(const Context& ctx, Dtype dtype) {
  if (ctx.device == Device::cpu) return computes(dtype);
  return dtype == Dtype::f32 || dtype == Dtype::bf16 || dtype == Dtype::f16;
}
// The type of statistics, parameter gradients and losses beside tensors of this type.
inline Dtype wide(const Context& ctx, Dtype dtype) { return ctx.device == Device::cpu ? dtype : Dtype::f32; }
// Whether `other` may be used where `dtype` is: itself, and on a GPU its wide type.
inline bool goes_with(const Context& ctx, Dtype dtype, Dtype other) {
  return computes(ctx, other) && (other == dtype || other == wide(ctx, dtype));
}

// Chunks of a reduction over rows: rows of its workspace.
inline std::int64_t row_chunks(const Context& ctx, std::int64_t rows) {
  return (ctx.device == Device::cpu ? kernels::row_chunks(rows) : kernels::cuda::row_chunks(rows)).chunks;
}

inline void check_contiguous(const Tensor& t, const char* name) {
  LONGSTRIDE_CHECK(t.given() && t.contiguous(), "{} {} is not contiguous", name, t.shape().text());
}

// A contiguous vector of this length and type.
inline void check_vector(const Tensor& t, std::int64_t length, Dtype dtype, const char* name) {
  LONGSTRIDE_CHECK(t.given() && t.contiguous() && t.count() == length && t.dtype() == dtype,
                   "{} is {} {}, not {} elements of {}", name, t.shape().text(), kernels::name_of(t.dtype()), length,
                   kernels::name_of(dtype));
}

}  // namespace longstride::ops
