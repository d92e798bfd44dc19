#include <algorithm>

#include "kernels/base/tensor_checks.h"
#include "kernels/remembered/remembered.h"

namespace longstride::kernels {

void RememberArgs::check(Device device) const {
  check_computes(device, now, "now");
  check_vector(now, now.count(), now.dtype(), "now");
  check_vector(next, now.count(), now.dtype(), "next");
  LONGSTRIDE_CHECK(device == Device::cpu || now.dtype() == Dtype::f32, "now is {}", name_of(now.dtype()));
}

void FirstKeyArgs::check(Device device) const {
  check_computes(device, now, "now");
  check_vector(now, now.count(), now.dtype(), "now");
  check_vector(first_key, now.count(), Dtype::i32, "first_key");
  LONGSTRIDE_CHECK(device == Device::cpu || now.dtype() == Dtype::f32, "now is {}", name_of(now.dtype()));
}

namespace cpu {

void remember(const RememberArgs& args, const Launch&) {
  with_float_type(args.now.dtype(), [&](auto zero) {
    using T = decltype(zero);
    const T length = static_cast<T>(args.length), added = static_cast<T>(args.added);
    for (std::int64_t r = 0; r < args.now.count(); ++r)
      args.next.as<T>()[r] = std::min(args.now.as<const T>()[r] + added, length);
  });
}

void first_key(const FirstKeyArgs& args, const Launch&) {
  with_float_type(args.now.dtype(), [&](auto zero) {
    using T = decltype(zero);
    for (std::int64_t r = 0; r < args.now.count(); ++r)
      args.first_key.as<std::int32_t>()[r] =
          static_cast<std::int32_t>(args.length) - static_cast<std::int32_t>(args.now.as<const T>()[r]);
  });
}

}  // namespace cpu
}  // namespace longstride::kernels
