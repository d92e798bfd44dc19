#include "framework/core/narrow.h"

#include "framework/core/errors.h"

namespace longstride {

void narrow(const Tensor& from, const Tensor& to) {
  LONGSTRIDE_CHECK(from.dtype() == Dtype::f32 && from.contiguous() && to.contiguous() && from.count() == to.count() &&
                       (to.dtype() == Dtype::bf16 || to.dtype() == Dtype::f16),
                   "narrow {} of {} to {} of {}", from.shape().text(), kernels::name_of(from.dtype()),
                   to.shape().text(), kernels::name_of(to.dtype()));
  const auto* x = from.as<const float>();
  auto* y = to.as<std::uint16_t>();
  const bool brain = to.dtype() == Dtype::bf16;
  for (std::int64_t i = 0; i < from.count(); ++i) y[i] = brain ? bf16_bits(x[i]) : f16_bits(x[i]);
}

}  // namespace longstride
