#include "kernels/base/tensor_checks.h"
#include "kernels/sinusoid/sinusoid.h"

namespace longstride::kernels {

void SinusoidArgs::check(Device device) const {
  LONGSTRIDE_CHECK(y.rank() == 2 && y.size(1) % 2 == 0, "y is {}, but must be (rows, an even width)", y.shape().text());
  check_contiguous(y, "y");
  check_computes(device, y, "y");
}

namespace cpu {

void sinusoid(const SinusoidArgs& args, const Launch&) {
  const std::int64_t rows = args.y.size(0), width = args.y.size(1), half = width / 2;
  with_float_type(args.y.dtype(), [&](auto zero) {
    using T = decltype(zero);
    constexpr double pi = 3.14159265358979323846;
    T* const y = args.y.as<T>();
#pragma omp parallel for schedule(static) if (rows * width > 4096)
    for (std::int64_t t = 0; t < rows; ++t)
      for (std::int64_t i = 0; i < half; ++i) {
        const double angle = pi * sinusoid_half_turns(t, sinusoid_frequency(i, width));
        y[t * width + i] = static_cast<T>(std::sin(angle));
        y[t * width + half + i] = static_cast<T>(std::cos(angle));
      }
  });
}

}  // namespace cpu
}  // namespace longstride::kernels
