#include <cmath>

#include "kernels/adagrad/adagrad.h"
#include "kernels/base/tensor_checks.h"

namespace longstride::kernels {

void AdagradArgs::check(Device device) const {
  check_computes(device, weights, "weights");
  const std::int64_t count = weights.count();
  const Dtype dtype = weights.dtype();
  check_vector(weights, count, exact_type(device, dtype), "weights");
  check_vector(gradient, count, dtype, "gradient");
  check_vector(sum, count, dtype, "sum");
  LONGSTRIDE_CHECK(tensor_squares.given() == (tensor_clip > 0), "tensor_clip is {}, and the squares are {}",
                   tensor_clip, tensor_squares.given() ? "given" : "absent");
  if (tensor_squares.given()) check_vector(tensor_squares, 1, Dtype::f64, "tensor_squares");
  if (!low_precision.given()) return;
  LONGSTRIDE_CHECK(device == Device::cuda && bytes_of(low_precision.dtype()) == 2, "low_precision is {}",
                   name_of(low_precision.dtype()));
  check_vector(low_precision, count, low_precision.dtype(), "low_precision");
}

namespace cpu {

void adagrad(const AdagradArgs& args, const Launch&) {
  if (args.scalars->finite == 0) return;
  with_float_type(args.weights.dtype(), [&](auto zero) {
    using T = decltype(zero);
    T* w = args.weights.as<T>();
    const T* gradient = args.gradient.as<const T>();
    T* sum = args.sum.as<T>();
    const std::int64_t n = args.weights.count();
    const AdagradFactors factors =
        adagrad_factors(*args.scalars, args.tensor_squares.as<const double>(), args.tensor_clip, args.weight_decay);
    const T scale = static_cast<T>(factors.scale), rate = static_cast<T>(factors.rate);
    const T shrink = static_cast<T>(factors.shrink), epsilon = static_cast<T>(args.epsilon);
#pragma omp parallel for simd schedule(static) if (n > 16384)
    for (std::int64_t i = 0; i < n; ++i) {
      const T g = scale * gradient[i];
      sum[i] += g * g;
      w[i] -= rate * g / (std::sqrt(sum[i]) + epsilon) + shrink * w[i];
    }
  });
}

}  // namespace cpu
}  // namespace longstride::kernels
