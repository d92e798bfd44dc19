#include <algorithm>
#include <cmath>

#include "kernels/elementwise/elementwise.h"
#include "kernels/muon/muon.h"

namespace longstride::kernels::cpu {
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

// A vector as a view.
template <class T>
View vector(T* data, Dtype dtype, std::int64_t count) {
  View v;
  v.data = data;
  v.dtype = dtype;
  v.rank = 1;
  v.size[0] = count;
  v.stride[0] = 1;
  return v;
}

template <class T>
double norm_of(const T* x, std::int64_t count, const NormaliseArgs& args, const Launch& launch) {
  double squares = 0;
  sum({vector(const_cast<T*>(x), args.x.dtype, count), vector(&squares, Dtype::f64, 1), args.partials, true}, launch);
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
  with_float_type(args.m.dtype, [&](auto zero) {
    using T = decltype(zero);
    const std::int64_t n = args.update.size[1];
    for (std::int64_t i = 0; i < args.update.size[0]; ++i)
      nesterov_of(args.gradient.as<const T>() + args.gradient_at.at[i], args.m.as<T>() + args.m_at.at[i],
                  args.update.as<T>() + i * n, n, args);
  });
}

void normalise(const NormaliseArgs& args, const Launch& launch) {
  with_float_type(args.y.dtype, [&](auto zero) {
    using T = decltype(zero);
    const std::int64_t n = args.y.size[1];
    for (std::int64_t matrix = 0; matrix < args.y.size[0]; ++matrix) {
      const T* x = args.x.as<const T>() + matrix * n;
      T* y = args.y.as<T>() + matrix * n;
      const T factor = static_cast<T>(1 / (norm_of(x, n, args, launch) + args.epsilon));
#pragma omp parallel for simd schedule(static) if (n > 16384)
      for (std::int64_t i = 0; i < n; ++i) y[i] = factor * x[i];
    }
  });
}

void polynomial(const PolynomialArgs& args, const Launch&) {
  with_float_type(args.x.dtype, [&](auto zero) {
    using T = decltype(zero);
    const std::int64_t n = args.x.size[1];
    for (std::int64_t i = 0; i < args.x.size[0]; ++i)
      polynomial_of(args.x.as<const T>() + i * n * n, args.square.as<T>() + i * n * n, n, args);
  });
}

void orthogonal_step(const OrthogonalStepArgs& args, const Launch&) {
  if (args.scalars->finite == 0) return;
  with_float_type(args.weights.dtype, [&](auto zero) {
    using T = decltype(zero);
    const std::int64_t n = args.update.size[1];
    const T rate = static_cast<T>(args.scalars->learning_rate * args.scale);
    const T shrink = static_cast<T>(args.scalars->learning_rate * args.weight_decay);
    for (std::int64_t matrix = 0; matrix < args.update.size[0]; ++matrix) {
      const T* update = args.update.as<const T>() + matrix * n;
      T* w = args.weights.as<T>() + args.at.at[matrix];
#pragma omp parallel for simd schedule(static) if (n > 16384)
      for (std::int64_t i = 0; i < n; ++i) w[i] -= rate * update[i] + shrink * w[i];
    }
  });
}

}  // namespace longstride::kernels::cpu
