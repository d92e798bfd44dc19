#include <algorithm>

#include "kernels/base/tensor_checks.h"
#include "kernels/remembered/remembered.h"

namespace longstride::kernels {

void RememberArgs::check(Device device) const {
  check_computes(device, now, "now");
  check_vector(now, now.count(), now.dtype(), "now");
  check_vector(next, now.count(), now.dtype(), "next");
  LONGSTRIDE_CHECK(rate > 0 && block > 0 && (compressed == 0 || (added % block == 0 && block % rate == 0)),
                   "{} rows, which become {} in blocks of {}", added, block / rate, block);
  if (begin.given()) {
    LONGSTRIDE_CHECK(begin.shape() == Shape({now.count(), 1, added}), "begin is {}", begin.shape().text());
    check_vector(begin, begin.count(), Dtype::i32, "begin");
  }
  LONGSTRIDE_CHECK(device == Device::cpu || now.dtype() == Dtype::f32, "now is {}", name_of(now.dtype()));
}

void FirstKeyArgs::check(Device device) const {
  check_computes(device, now, "now");
  check_vector(now, now.count(), now.dtype(), "now");
  check_vector(first_key, now.count(), Dtype::i32, "first_key");
  LONGSTRIDE_CHECK(device == Device::cpu || now.dtype() == Dtype::f32, "now is {}", name_of(now.dtype()));
}

void KeyBoundsArgs::check(Device device) const {
  LONGSTRIDE_CHECK(begin.rank() == 3 && begin.size(1) == 1, "begin is {}", begin.shape().text());
  for (const auto& [t, name] :
       {std::pair{&begin, "begin"}, {&end, "end"}, {&key_begin, "key_begin"}, {&key_end, "key_end"}}) {
    LONGSTRIDE_CHECK(t->shape() == begin.shape(), "{} is {} for {}", name, t->shape().text(), begin.shape().text());
    check_vector(*t, begin.count(), Dtype::i32, name);
  }
  if (now.given()) check_vector(now, begin.size(0), now.dtype(), "now");
  LONGSTRIDE_CHECK(device == Device::cpu || !now.given() || now.dtype() == Dtype::f32, "now is {}",
                   name_of(now.dtype()));
}

namespace cpu {
namespace {

// The whole number in row r of a count that is kept as f32 or f64.
std::int64_t count_at(const Tensor& counts, std::int64_t r) {
  return counts.dtype() == Dtype::f64 ? static_cast<std::int64_t>(counts.as<const double>()[r])
                                      : static_cast<std::int64_t>(counts.as<const float>()[r]);
}

}  // namespace

void remember(const RememberArgs& args, const Launch&) {
  const RememberedRows rows{args.length, args.added, args.compressed, args.rate, args.block};
  with_float_type(args.now.dtype(), [&](auto zero) {
    for (std::int64_t r = 0; r < args.now.count(); ++r) {
      const std::int64_t begin = args.begin.given() ? args.begin.as<const std::int32_t>()[(r + 1) * args.added - 1] : 0;
      args.next.as<decltype(zero)>()[r] = static_cast<decltype(zero)>(rows.after(count_at(args.now, r), begin));
    }
  });
}

void first_key(const FirstKeyArgs& args, const Launch&) {
  for (std::int64_t r = 0; r < args.now.count(); ++r)
    args.first_key.as<std::int32_t>()[r] = static_cast<std::int32_t>(args.length - count_at(args.now, r));
}

void key_bounds(const KeyBoundsArgs& args, const Launch&) {
  const std::int64_t n = args.begin.size(2);
  for (std::int64_t i = 0; i < args.begin.count(); ++i) {
    const std::int64_t begin = args.begin.as<const std::int32_t>()[i];
    const std::int64_t from = begin == 0 && args.now.given() ? -count_at(args.now, i / n) : begin;
    args.key_begin.as<std::int32_t>()[i] = static_cast<std::int32_t>(args.length + from);
    args.key_end.as<std::int32_t>()[i] = static_cast<std::int32_t>(args.length) + args.end.as<const std::int32_t>()[i];
  }
}

}  // namespace cpu
}  // namespace longstride::kernels
