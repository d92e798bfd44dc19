#include "kernels/softmax/softmax.h"

#include <algorithm>
#include <cmath>

#include "kernels/base/tensor_checks.h"

namespace longstride::kernels {
namespace {

void check_matrices(Device device, const Tensor& y, const Tensor& exact, const Tensor& compute) {
  check_computes(device, y, "y");
  LONGSTRIDE_CHECK(y.rank() == 2 && y.size(1) > 0, "y is {}", y.shape().text());
  check_contiguous(y, "y");
  check_vector(exact, y.count(), exact_type(device, y.dtype()), "x or dy");
  check_vector(compute, y.count(), y.dtype(), "y or dx");
}

}  // namespace

void SoftmaxArgs::check(Device device) const { check_matrices(device, y, x, y); }
void SoftmaxBackwardArgs::check(Device device) const { check_matrices(device, y, dy, dx); }

namespace cpu {

void softmax(const SoftmaxArgs& args, const Launch&) {
  const std::int64_t rows = args.y.size(0), columns = args.y.size(1);
  with_float_type(args.y.dtype(), [&](auto zero) {
    using T = decltype(zero);
    const T scale = static_cast<T>(args.scale);
#pragma omp parallel for schedule(static) if (args.y.count() > 16384)
    for (std::int64_t r = 0; r < rows; ++r) {
      const T* const x = args.x.as<const T>() + r * columns;
      T* const y = args.y.as<T>() + r * columns;
      const T largest = scale * (scale > 0 ? *std::max_element(x, x + columns) : *std::min_element(x, x + columns));
      T sum = 0;
      for (std::int64_t j = 0; j < columns; ++j) {
        y[j] = std::exp(scale * x[j] - largest);
        sum += y[j];
      }
      for (std::int64_t j = 0; j < columns; ++j) y[j] /= sum;
    }
  });
}

void softmax_backward(const SoftmaxBackwardArgs& args, const Launch&) {
  const std::int64_t rows = args.y.size(0), columns = args.y.size(1);
  with_float_type(args.y.dtype(), [&](auto zero) {
    using T = decltype(zero);
    const T scale = static_cast<T>(args.scale);
#pragma omp parallel for schedule(static) if (args.y.count() > 16384)
    for (std::int64_t r = 0; r < rows; ++r) {
      const T *const y = args.y.as<const T>() + r * columns, *const dy = args.dy.as<const T>() + r * columns;
      T* const dx = args.dx.as<T>() + r * columns;
      T along = 0;
      for (std::int64_t j = 0; j < columns; ++j) along += y[j] * dy[j];
      for (std::int64_t j = 0; j < columns; ++j) dx[j] = scale * y[j] * (dy[j] - along);
    }
  });
}

}  // namespace cpu
}  // namespace longstride::kernels
