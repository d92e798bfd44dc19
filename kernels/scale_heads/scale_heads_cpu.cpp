#include "kernels/base/tensor_checks.h"
#include "kernels/scale_heads/scale_heads.h"

namespace longstride::kernels {
namespace {

template <class Args>
void check_scale(Device device, const Args& args) {
  const Tensor& x = args.x;
  check_computes(device, x, "scaled heads");
  LONGSTRIDE_CHECK(x.rank() == 4 && x.count() > 0, "scaled heads are {}, but must be (batch, seq, heads, size)",
                   x.shape().text());
  check_rows(x, x.shape(), x.dtype(), "scaled heads");
  const std::int64_t heads = x.size(2);
  check_vector(args.scale, args.scale.rank() == 1 ? heads : x.size(0) * x.size(1) * heads,
               exact_type(device, x.dtype()), "the scale of heads");
}

}  // namespace

void ScaleHeadsArgs::check(Device device) const {
  check_scale(device, *this);
  check_rows(y, x.shape(), x.dtype(), "scaled heads' y");
  if (add.given()) check_rows(add, x.shape(), x.dtype(), "what is added to scaled heads");
}

void ScaleHeadsBackwardArgs::check(Device device) const {
  check_scale(device, *this);
  check_rows(dy, x.shape(), x.dtype(), "scaled heads' dy");
  check_rows(dx, x.shape(), x.dtype(), "scaled heads' dx");
  check_vector(dscale, x.size(0) * x.size(1) * x.size(2), exact_type(device, x.dtype()), "scaled heads' dscale");
}

namespace cpu {
namespace {

// Calls f(index of the row in (batch, n, heads), its scale, at(tensor)) for every row.
template <class T, class Args, class F>
void each_row(const Args& args, F&& f) {
  const std::int64_t n = args.x.size(1), heads = args.x.size(2);
  const T* scale = args.scale.template as<const T>();
  const bool shared = args.scale.rank() == 1;
#pragma omp parallel for schedule(static) if (args.x.count() > 16384)
  for (std::int64_t row = 0; row < args.x.size(0) * n * heads; ++row) {
    const std::int64_t h = row % heads, s = row / heads / n, t = row / heads % n;
    f(row, scale[shared ? h : row], [s, t, h](const Tensor& view) {
      return view.as<T>() + s * view.stride(0) + t * view.stride(1) + h * view.stride(2);
    });
  }
}

}  // namespace

void scale_heads(const ScaleHeadsArgs& args, const Launch&) {
  with_float_type(args.x.dtype(), [&](auto zero) {
    using T = decltype(zero);
    each_row<T>(args, [&](std::int64_t, T scale, const auto& at) {
      const T *x = at(args.x), *add = args.add.given() ? at(args.add) : nullptr;
      T* y = at(args.y);
      for (std::int64_t c = 0; c < args.x.size(3); ++c) y[c] = (add != nullptr ? add[c] : T(0)) + scale * x[c];
    });
  });
}

void scale_heads_backward(const ScaleHeadsBackwardArgs& args, const Launch&) {
  with_float_type(args.x.dtype(), [&](auto zero) {
    using T = decltype(zero);
    each_row<T>(args, [&](std::int64_t row, T scale, const auto& at) {
      const T *x = at(args.x), *dy = at(args.dy);
      T *dx = at(args.dx), sum = 0;
      for (std::int64_t c = 0; c < args.x.size(3); ++c) {
        sum += dy[c] * x[c];
        dx[c] = (args.adds ? dx[c] : T(0)) + scale * dy[c];
      }
      args.dscale.as<T>()[row] = sum;
    });
  });
}

}  // namespace cpu
}  // namespace longstride::kernels
