#include "kernels/sum_loss/sum_loss.h"

#include "kernels/base/tensor_checks.h"

namespace longstride::kernels {

void SumLossArgs::check(Device device) const {
  check_computes(device, x, "x");
  LONGSTRIDE_CHECK(x.dtype() == exact_type(device, x.dtype()), "x is of {}", name_of(x.dtype()));
  check_vector(x, x.count(), x.dtype(), "x");
  check_vector(gradient, x.count(), x.dtype(), "gradient");
  check_vector(loss, 1, Dtype::f64, "loss");
}

namespace cpu {

void sum_loss(const SumLossArgs& args, const Launch&) {
  with_float_type(args.x.dtype(), [&](auto zero) {
    using T = decltype(zero);
    const T* x = args.x.as<const T>();
    T* gradient = args.gradient.as<T>();
    const double scale = args.loss_scale != nullptr ? static_cast<double>(*args.loss_scale) : 1;
    const T slope = static_cast<T>(args.factor * scale);
    double sum = 0;
    for (std::int64_t i = 0; i < args.x.count(); ++i) {
      gradient[i] += slope;
      sum += static_cast<double>(x[i]);
    }
    *args.loss.as<double>() += args.factor * sum;
  });
}

}  // namespace cpu
}  // namespace longstride::kernels
