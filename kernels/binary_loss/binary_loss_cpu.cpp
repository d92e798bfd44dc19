#include <cmath>

#include "kernels/base/tensor_checks.h"
#include "kernels/binary_loss/binary_loss.h"

namespace longstride::kernels {

void BinaryLossArgs::check(Device device) const {
  const std::int64_t n = logits.count();
  check_vector(logits, n, exact_type(device, logits.dtype()), "logits");
  check_vector(targets, n, Dtype::u16, "targets");
  check_vector(losses, n, logits.dtype(), "losses");
  if (weights.given()) check_vector(weights, n, Dtype::f32, "weights");
  if (right.given()) check_vector(right, n, Dtype::u8, "right");
  if (!gradient.given()) return;
  check_vector(gradient, n, device == Device::cpu ? logits.dtype() : gradient.dtype(), "gradient");
  check_computes(device, gradient, "gradient");
}

namespace cpu {

// log(1 + exp(-s x)) for s = 1 where the target is yes and -1 elsewhere, without overflow.
void binary_loss(const BinaryLossArgs& args, const Launch&) {
  const auto* targets = args.targets.as<const std::uint16_t>();
  const auto* weights = args.weights.as<const float>();
  auto* right = args.right.as<std::uint8_t>();
  with_float_type(args.logits.dtype(), [&](auto zero) {
    using T = decltype(zero);
    const T of_all =
        static_cast<T>(args.scale * (args.loss_scale != nullptr ? static_cast<double>(*args.loss_scale) : 1));
    for (std::int64_t i = 0; i < args.logits.count(); ++i) {
      const bool yes = targets[i] != 0;
      const T x = args.logits.as<const T>()[i], weight = weights != nullptr ? static_cast<T>(weights[i]) : T(1);
      const T small = std::exp(-std::abs(x)), p = (x > 0 ? T(1) : small) / (1 + small);
      args.losses.as<T>()[i] = weight * (std::max(yes ? -x : x, T(0)) + std::log1p(small));
      if (right != nullptr) right[i] = (x >= 0) == yes ? 1 : 0;
      if (args.gradient.given()) args.gradient.as<T>()[i] = of_all * weight * (p - (yes ? T(1) : T(0)));
    }
  });
}

}  // namespace cpu
}  // namespace longstride::kernels
