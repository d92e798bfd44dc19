#include "kernels/base/tensor_checks.h"
#include "kernels/squared_error/squared_error.h"

namespace longstride::kernels {

void SquaredErrorArgs::check(Device device) const {
  check_computes(device, dx, "dx");
  LONGSTRIDE_CHECK(x.rank() == 3, "x is {}", x.shape().text());
  const Dtype exact = exact_type(device, dx.dtype());
  check_vector(x, x.count(), exact, "x");
  check_vector(target, x.count(), exact, "target");
  check_vector(dx, x.count(), dx.dtype(), "dx");
  check_vector(losses, x.size(0) * x.size(1), exact, "losses");
  if (first_key.given()) check_vector(first_key, x.size(0), Dtype::i32, "first_key");
}

namespace cpu {

void squared_error(const SquaredErrorArgs& args, const Launch&) {
  const std::int64_t groups = args.x.size(0), rows = args.x.size(1), width = args.x.size(2);
  with_float_type(args.x.dtype(), [&](auto zero) {
    using T = decltype(zero);
    const double loss_scale = args.loss_scale != nullptr ? static_cast<double>(*args.loss_scale) : 1.0;
    const T slope = static_cast<T>(2 * args.scale * loss_scale);
#pragma omp parallel for schedule(static) if (args.x.count() > 16384)
    for (std::int64_t i = 0; i < groups * rows; ++i) {
      const bool hidden = args.first_key.given() && args.first_key.as<const std::int32_t>()[i / rows] > args.last;
      const T *const x = args.x.as<const T>() + i * width, *const target = args.target.as<const T>() + i * width;
      T* const dx = args.dx.as<T>() + i * width;
      T sum = 0;
      for (std::int64_t c = 0; c < width; ++c) {
        const T off = hidden ? T(0) : x[c] - target[c];
        sum += off * off;
        dx[c] = slope * off;
      }
      args.losses.as<T>()[i] = static_cast<T>(args.scale) * sum;
    }
  });
}

}  // namespace cpu
}  // namespace longstride::kernels
