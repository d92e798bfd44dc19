#include <algorithm>
#include <cmath>

#include "kernels/base/tensor_checks.h"
#include "kernels/elementwise/elementwise.h"
#include "kernels/muon/muon.h"

namespace longstride::kernels {

namespace {

void check_matrices(const MatrixOffsets& at, const Tensor& matrices, const Tensor& flat, const char* name) {
  LONGSTRIDE_CHECK(matrices.rank() == 2 && matrices.size(0) > 0 && matrices.size(0) <= MatrixOffsets::most,
                   "{} matrices", matrices.shape().text());
  check_contiguous(flat, name);
  for (std::int64_t i = 0; i < matrices.size(0); ++i)
    LONGSTRIDE_CHECK(at.at[i] >= 0 && at.at[i] + matrices.size(1) <= flat.count(), "a matrix of {} at {} of {} of {}",
                     matrices.size(1), at.at[i], name, flat.count());
}

}  // namespace

void NesterovArgs::check(Device device) const {
  check_matrices(gradient_at, update, gradient, "gradient");
  check_matrices(m_at, update, m, "m");
  check_vector(gradient, gradient.count(), exact_type(device, update.dtype()), "gradient");
  check_vector(m, m.count(), gradient.dtype(), "m");
  check_vector(update, update.count(), gradient.dtype(), "update");
}

void NormaliseArgs::check(Device device) const {
  LONGSTRIDE_CHECK(x.rank() == 2 && x.shape() == y.shape(), "x is {}, y {}", x.shape().text(), y.shape().text());
  check_vector(x, x.count(), exact_type(device, x.dtype()), "x");
  check_vector(y, x.count(), device == Device::cpu ? x.dtype() : y.dtype(), "y");
  check_computes(device, y, "y");
}

void PolynomialArgs::check(Device device) const {
  LONGSTRIDE_CHECK(x.rank() == 3 && x.size(1) == x.size(2), "x is {}", x.shape().text());
  check_computes(device, x, "x");
  check_vector(x, x.count(), x.dtype(), "x");
  check_vector(square, x.count(), x.dtype(), "square");
}

void OrthogonalStepArgs::check(Device device) const {
  check_matrices(at, update, weights, "weights");
  check_vector(weights, weights.count(), exact_type(device, update.dtype()), "weights");
  check_vector(update, update.count(), update.dtype(), "update");
  if (low_precision.given()) check_vector(low_precision, weights.count(), update.dtype(), "low_precision");
}

Cost OrthogonalStepArgs::cost() const {
  const double read_and_written =
      2 * static_cast<double>(update.count()) * static_cast<double>(bytes_of(weights.dtype()));
  return {WorkKind::optimizer, bytes_of(update) * (low_precision.given() ? 2 : 1) + read_and_written, 0};
}

namespace cpu {
namespace {

template <class T>
void nesterov_of(const T* gradient, T* m, T* update, std::int64_t n, const NesterovArgs& args) {
  if (args.scalars->finite == 0) {
    std::fill_n(update, n, T(0));
    return;
  }
  const T momentum = static_cast<T>(args.momentum), rest = static_cast<T>(1 - args.momentum);
  const T scale = static_cast<T>(args.scalars->clip_coefficient);
#pragma omp parallel for simd schedule(static) if (n > 16384)
  for (std::int64_t i = 0; i < n; ++i) {
    const T g = scale * gradient[i];
    m[i] = momentum * m[i] + rest * g;
    update[i] = momentum * m[i] + rest * g;
  }
}

template <class T>
double norm_of(const T* x, std::int64_t count, const NormaliseArgs& args, const Launch& launch) {
  double squares = 0;
  sum({Tensor(const_cast<T*>(x), args.x.dtype(), {count}), Tensor(&squares, Dtype::f64, {1}), args.scratch, true},
      launch);
  return std::sqrt(squares);
}

template <class T>
void polynomial_of(const T* x, T* square, std::int64_t n, const PolynomialArgs& args) {
  const T c0 = static_cast<T>(args.c0), c1 = static_cast<T>(args.c1), c2 = static_cast<T>(args.c2);
#pragma omp parallel for schedule(static) if (n > 128)
  for (std::int64_t row = 0; row < n; ++row) {
    const T* from = x + row * n;
    T* to = square + row * n;
#pragma omp simd
    for (std::int64_t i = 0; i < n; ++i) to[i] = c1 * from[i] + c2 * to[i];
    to[row] += c0;
  }
}

}  // namespace

void nesterov(const NesterovArgs& args, const Launch&) {
  with_float_type(args.m.dtype(), [&](auto zero) {
    using T = decltype(zero);
    const std::int64_t n = args.update.size(1);
    for (std::int64_t i = 0; i < args.update.size(0); ++i)
      nesterov_of(args.gradient.as<const T>() + args.gradient_at.at[i], args.m.as<T>() + args.m_at.at[i],
                  args.update.as<T>() + i * n, n, args);
  });
}

void normalise(const NormaliseArgs& args, const Launch& launch) {
  with_float_type(args.y.dtype(), [&](auto zero) {
    using T = decltype(zero);
    const std::int64_t n = args.y.size(1);
    for (std::int64_t matrix = 0; matrix < args.y.size(0); ++matrix) {
      const T* x = args.x.as<const T>() + matrix * n;
      T* y = args.y.as<T>() + matrix * n;
      const T factor = static_cast<T>(1 / (norm_of(x, n, args, launch) + args.epsilon));
#pragma omp parallel for simd schedule(static) if (n > 16384)
      for (std::int64_t i = 0; i < n; ++i) y[i] = factor * x[i];
    }
  });
}

void polynomial(const PolynomialArgs& args, const Launch&) {
  with_float_type(args.x.dtype(), [&](auto zero) {
    using T = decltype(zero);
    const std::int64_t n = args.x.size(1);
    for (std::int64_t i = 0; i < args.x.size(0); ++i)
      polynomial_of(args.x.as<const T>() + i * n * n, args.square.as<T>() + i * n * n, n, args);
  });
}

void orthogonal_step(const OrthogonalStepArgs& args, const Launch&) {
  if (args.scalars->finite == 0) return;
  with_float_type(args.weights.dtype(), [&](auto zero) {
    using T = decltype(zero);
    const std::int64_t n = args.update.size(1);
    const T rate = static_cast<T>(args.scalars->learning_rate * args.scale);
    const T shrink = static_cast<T>(args.scalars->learning_rate * args.weight_decay);
    for (std::int64_t matrix = 0; matrix < args.update.size(0); ++matrix) {
      const T* update = args.update.as<const T>() + matrix * n;
      T* w = args.weights.as<T>() + args.at.at[matrix];
#pragma omp parallel for simd schedule(static) if (n > 16384)
      for (std::int64_t i = 0; i < n; ++i) w[i] -= rate * update[i] + shrink * w[i];
    }
  });
}

}  // namespace cpu
}  // namespace longstride::kernels
