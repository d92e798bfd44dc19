#include "kernels/gelu/gelu.h"

#include "kernels/base/activation.h"

namespace longstride::kernels::cpu {

void gelu(const GeluArgs& args, const Launch&) {
  with_float_type(args.x.dtype, [&](auto zero) {
    using T = decltype(zero);
    const T* x = args.x.as<T>();
    T* y = args.y.as<T>();
    const std::int64_t n = args.x.count();
#pragma omp parallel for simd schedule(static) if (n > 16384)
    for (std::int64_t i = 0; i < n; ++i) y[i] = gelu_of(x[i]);
  });
}

void gelu_backward(const GeluBackwardArgs& args, const Launch&) {
  with_float_type(args.x.dtype, [&](auto zero) {
    using T = decltype(zero);
    const T* dy = args.dy.as<T>();
    const T* x = args.x.as<T>();
    T* dx = args.dx.as<T>();
    const std::int64_t n = args.x.count();
#pragma omp parallel for simd schedule(static) if (n > 16384)
    for (std::int64_t i = 0; i < n; ++i) dx[i] = dy[i] * gelu_slope_of(x[i]);
  });
}

}  // namespace longstride::kernels::cpu
