#include "kernels/base/tensor_checks.h"
#include "kernels/mean_rows/mean_rows.h"

namespace longstride::kernels {
namespace {

void check_mean(Device device, const Tensor& x, const Tensor& end, const Tensor& y) {
  check_computes(device, x, "x");
  LONGSTRIDE_CHECK(x.rank() == 3 && x.size(1) > 0, "x is {}", x.shape().text());
  check_rows(x, x.shape(), x.dtype(), "x");
  check_rows(y, {x.size(0), 1, x.size(2)}, x.dtype(), "y");
  if (!end.given()) return;
  LONGSTRIDE_CHECK(end.shape() == Shape({x.size(0), 1}) && end.dtype() == Dtype::i32, "end is {}", end.shape().text());
}

}  // namespace

void MeanRowsArgs::check(Device device) const { check_mean(device, x, end, y); }
void MeanRowsBackwardArgs::check(Device device) const { check_mean(device, dx, end, dy); }

namespace cpu {
namespace {

std::int64_t end_of(const Tensor& end, std::int64_t group, std::int64_t rows) {
  return end.given() ? end.as<const std::int32_t>()[group * end.stride(0)] : rows;
}

}  // namespace

// Threads share the columns, so that a sum has the order of the rows.
void mean_rows(const MeanRowsArgs& args, const Launch&) {
  const Tensor &x = args.x, &y = args.y;
  with_float_type(x.dtype(), [&](auto zero) {
    using T = decltype(zero);
    for (std::int64_t g = 0; g < x.size(0); ++g) {
      const std::int64_t end = end_of(args.end, g, x.size(1)), width = x.size(2);
      const T* const from = x.as<const T>() + g * x.stride(0);
      T* const to = y.as<T>() + g * y.stride(0);
#pragma omp parallel for schedule(static) if (end * width > 16384)
      for (std::int64_t c = 0; c < width; ++c) {
        T sum = 0;
        for (std::int64_t t = 0; t < end; ++t) sum += from[t * x.stride(1) + c];
        to[c] = sum / static_cast<T>(end);
      }
    }
  });
}

void mean_rows_backward(const MeanRowsBackwardArgs& args, const Launch&) {
  const Tensor &dx = args.dx, &dy = args.dy;
  const std::int64_t rows = dx.size(1), width = dx.size(2);
  with_float_type(dx.dtype(), [&](auto zero) {
    using T = decltype(zero);
#pragma omp parallel for schedule(static) if (dx.count() > 16384)
    for (std::int64_t i = 0; i < dx.size(0) * rows; ++i) {
      const std::int64_t g = i / rows, t = i % rows, end = end_of(args.end, g, rows);
      const T* const from = dy.as<const T>() + g * dy.stride(0);
      T* const to = dx.as<T>() + g * dx.stride(0) + t * dx.stride(1);
      for (std::int64_t c = 0; c < width; ++c) to[c] = t < end ? from[c] / static_cast<T>(end) : T(0);
    }
  });
}

}  // namespace cpu
}  // namespace longstride::kernels
