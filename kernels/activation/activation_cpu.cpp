#include "kernels/activation/activation.h"

#include <cmath>
#include <numbers>

#include "kernels/base/tensor_checks.h"
#include "kernels/gemm/activation.h"

namespace longstride::kernels {
namespace {

void check_pair(Device device, Activation activation, const Tensor& x, const Tensor& y) {
  check_computes(device, x, "x");
  LONGSTRIDE_CHECK(y.rank() == 2 && x.rank() == 2, "x is {} and y {}", x.shape().text(), y.shape().text());
  const std::int64_t rows = y.size(0), width = y.size(1);
  LONGSTRIDE_CHECK(x.shape() == Shape({rows, inputs_of(activation) * width}), "x is {} for a y of {}", x.shape().text(),
                   y.shape().text());
  check_vector(x, x.count(), x.dtype(), "x");
  check_vector(y, y.count(), x.dtype(), "y");
  LONGSTRIDE_CHECK(inputs_of(activation) == 1 || x.data() == nullptr || x.data() != y.data(),
                   "two elements make one, which may not overwrite them");
}

}  // namespace

void ActivationArgs::check(Device device) const { check_pair(device, activation, x, y); }

void ActivationBackwardArgs::check(Device device) const {
  check_pair(device, activation, x, dy);
  check_pair(device, activation, dx, dy);
  LONGSTRIDE_CHECK(dx.dtype() == x.dtype(), "dx is {}, x {}", name_of(dx.dtype()), name_of(x.dtype()));
}

namespace cpu {
namespace {

template <class T>
T normal_distribution(T x) {
  return std::erfc(-x * (std::numbers::sqrt2_v<T> / 2)) / 2;
}
template <class T>
T normal_density(T x) {
  return std::exp(-x * x / 2) * (std::numbers::inv_sqrtpi_v<T> / std::numbers::sqrt2_v<T>);
}

template <class T>
T value_of(Activation activation, T x) {
  switch (activation) {
    case Activation::sigmoid_gelu:
      return gelu_of(x);
    case Activation::relu:
      return x > 0 ? x : T(0);
    default:
      return x * normal_distribution(x);
  }
}

template <class T>
T slope_of(Activation activation, T x) {
  switch (activation) {
    case Activation::sigmoid_gelu:
      return gelu_slope_of(x);
    case Activation::relu:
      return x > 0 ? T(1) : T(0);
    default:
      return normal_distribution(x) + x * normal_density(x);
  }
}

template <class T>
void forward(const ActivationArgs& args) {
  const std::int64_t rows = args.y.size(0), width = args.y.size(1), inputs = inputs_of(args.activation);
#pragma omp parallel for schedule(static) if (rows * width > 16384)
  for (std::int64_t r = 0; r < rows; ++r) {
    const T* x = args.x.as<const T>() + r * inputs * width;
    T* y = args.y.as<T>() + r * width;
    for (std::int64_t j = 0; j < width; ++j) {
      const T value = value_of(args.activation, x[j]);
      y[j] = inputs == 2 ? value * x[width + j] : value;
    }
  }
}

template <class T>
void backward(const ActivationBackwardArgs& args) {
  const std::int64_t rows = args.dy.size(0), width = args.dy.size(1), inputs = inputs_of(args.activation);
#pragma omp parallel for schedule(static) if (rows * width > 16384)
  for (std::int64_t r = 0; r < rows; ++r) {
    const T* x = args.x.as<const T>() + r * inputs * width;
    const T* dy = args.dy.as<const T>() + r * width;
    T* dx = args.dx.as<T>() + r * inputs * width;
    for (std::int64_t j = 0; j < width; ++j) {
      const T slope = slope_of(args.activation, x[j]);
      if (inputs == 2) {
        dx[j] = dy[j] * x[width + j] * slope;
        dx[width + j] = dy[j] * value_of(args.activation, x[j]);
      } else {
        dx[j] = dy[j] * slope;
      }
    }
  }
}

}  // namespace

void activation(const ActivationArgs& args, const Launch&) {
  with_float_type(args.x.dtype(), [&](auto zero) { forward<decltype(zero)>(args); });
}

void activation_backward(const ActivationBackwardArgs& args, const Launch&) {
  with_float_type(args.x.dtype(), [&](auto zero) { backward<decltype(zero)>(args); });
}

}  // namespace cpu
}  // namespace longstride::kernels
