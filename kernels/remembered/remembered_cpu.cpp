#include <algorithm>

#include "kernels/base/tensor_checks.h"
#include "kernels/remembered/remembered.h"

namespace longstride::kernels {

void RememberArgs::check(Device device) const {
  check_computes(device, now, "now");
  check_vector(now, now.count(), now.dtype(), "now");
  check_vector(next, now.count(), now.dtype(), "next");
  LONGSTRIDE_CHECK(rate > 0 && (compressed == 0 || added % rate == 0), "{} rows, of which {} become one", added, rate);
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
    const T length = static_cast<T>(args.length), all = static_cast<T>(args.length + args.compressed);
    const T added = static_cast<T>(args.added), compressed = static_cast<T>(args.added / args.rate);
    for (std::int64_t r = 0; r < args.now.count(); ++r) {
      const T now = args.now.as<const T>()[r];
      args.next.as<T>()[r] = now < length ? std::min(now + added, length) : std::min(now + compressed, all);
    }
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
