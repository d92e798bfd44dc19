#include <algorithm>
#include <cmath>

#include "kernels/muon.h"

namespace longstride::kernels::cpu {

void nesterov(const NesterovArgs& args, const Launch&) {
  with_float_type(args.m.dtype, [&](auto zero) {
    using T = decltype(zero);
    const T* gradient = args.gradient.as<const T>();
    T* m = args.m.as<T>();
    T* update = args.update.as<T>();
    const std::int64_t n = args.m.count();
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
  });
}

void normalise(const NormaliseArgs& args, const Launch&) {
  with_float_type(args.y.dtype, [&](auto zero) {
    using T = decltype(zero);
    const T* x = args.x.as<const T>();
    T* y = args.y.as<T>();
    const std::int64_t n = args.y.count();
    const T factor = static_cast<T>(1 / (std::sqrt(*args.squares.as<const double>()) + args.epsilon));
#pragma omp parallel for simd schedule(static) if (n > 16384)
    for (std::int64_t i = 0; i < n; ++i) y[i] = factor * x[i];
  });
}

void polynomial(const PolynomialArgs& args, const Launch&) {
  with_float_type(args.x.dtype, [&](auto zero) {
    using T = decltype(zero);
    const std::int64_t n = args.x.size[0];
    const T c0 = static_cast<T>(args.c0), c1 = static_cast<T>(args.c1), c2 = static_cast<T>(args.c2);
#pragma omp parallel for schedule(static) if (n > 128)
    for (std::int64_t row = 0; row < n; ++row) {
      const T* x = args.x.as<const T>() + row * n;
      T* square = args.square.as<T>() + row * n;
#pragma omp simd
      for (std::int64_t i = 0; i < n; ++i) square[i] = c1 * x[i] + c2 * square[i];
      square[row] += c0;
    }
  });
}

void orthogonal_step(const OrthogonalStepArgs& args, const Launch&) {
  if (args.scalars->finite == 0) return;
  with_float_type(args.weights.dtype, [&](auto zero) {
    using T = decltype(zero);
    const T* update = args.update.as<const T>();
    T* w = args.weights.as<T>();
    const std::int64_t n = args.weights.count();
    const T rate = static_cast<T>(args.scalars->learning_rate * args.scale);
    const T shrink = static_cast<T>(args.scalars->learning_rate * args.weight_decay);
#pragma omp parallel for simd schedule(static) if (n > 16384)
    for (std::int64_t i = 0; i < n; ++i) w[i] -= rate * update[i] + shrink * w[i];
  });
}

}  // namespace longstride::kernels::cpu
