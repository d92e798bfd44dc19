#include "framework/core/exact_conversion.h"

#include <bit>
#include <cmath>
#include <cstdint>

#include "framework/core/errors.h"

namespace longstride {
namespace {

// Every type as f32, which holds all values of the others. from_f32 may give any bits for a value that the type lacks.

struct F32 {
  using Bits = float;
  static float to_f32(Bits bits) { return bits; }
  static Bits from_f32(float x) { return x; }
};

struct Bf16 {
  using Bits = std::uint16_t;
  static float to_f32(Bits bits) { return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16); }
  static Bits from_f32(float x) { return static_cast<Bits>(std::bit_cast<std::uint32_t>(x) >> 16); }
};

// 1 bit of sign, 5 of the exponent, whose bias is 15, and 10 of the fraction; f32 has 8, 127 and 23.
struct F16 {
  using Bits = std::uint16_t;
  static constexpr int largest = 15, smallest = -14;  // exponents of normal numbers

  static float to_f32(Bits bits) {
    const std::uint32_t sign = (bits & 0x8000U) << 16, exponent = bits >> 10 & 31U, fraction = bits & 1023U;
    if (exponent == 31) return std::bit_cast<float>(sign | 0x7F800000U | fraction << 13);
    const float magnitude = exponent == 0
                                ? std::ldexp(static_cast<float>(fraction), smallest - 10)
                                : std::ldexp(static_cast<float>(1024 + fraction), static_cast<int>(exponent) - 25);
    return std::bit_cast<float>(sign | std::bit_cast<std::uint32_t>(magnitude));
  }
  static Bits from_f32(float x) {
    const auto bits = std::bit_cast<std::uint32_t>(x);
    const std::uint32_t sign = bits >> 16 & 0x8000U, fraction = bits & 0x7FFFFFU;
    const int exponent = static_cast<int>(bits >> 23 & 255U) - 127;
    if (exponent == 128) return static_cast<Bits>(sign | 0x7C00U | fraction >> 13);  // infinity or NaN
    if (exponent > largest || exponent < smallest - 10) return static_cast<Bits>(sign);
    if (exponent < smallest) return static_cast<Bits>(sign | (fraction | 0x800000U) >> (smallest - exponent + 13));
    return static_cast<Bits>(sign | static_cast<std::uint32_t>(exponent + 15) << 10 | fraction >> 13);
  }
};

template <class From, class To>
bool convert(const typename From::Bits* from, typename To::Bits* to, std::int64_t count) {
  bool exact = true;
  for (std::int64_t i = 0; i < count; ++i) {
    const float x = From::to_f32(from[i]);
    to[i] = To::from_f32(x);
    exact &= std::bit_cast<std::uint32_t>(To::to_f32(to[i])) == std::bit_cast<std::uint32_t>(x);
  }
  return exact;
}

// Calls f(the type's struct).
template <class F>
bool with_type(Dtype dtype, F&& f) {
  switch (dtype) {
    case Dtype::f32:
      return f(F32{});
    case Dtype::bf16:
      return f(Bf16{});
    case Dtype::f16:
      return f(F16{});
    default:
      LONGSTRIDE_CHECK(false, "values of {}", kernels::name_of(dtype));
  }
  return false;
}

}  // namespace

bool convert_exactly(const Tensor& from, const Tensor& to) {
  LONGSTRIDE_CHECK(from.contiguous() && to.contiguous() && from.count() == to.count(), "{} to {}", from.shape().text(),
                   to.shape().text());
  return with_type(from.dtype(), [&](auto source) {
    return with_type(to.dtype(), [&](auto target) {
      using From = decltype(source);
      using To = decltype(target);
      return convert<From, To>(from.as<const typename From::Bits>(), to.as<typename To::Bits>(), from.count());
    });
  });
}

}  // namespace longstride
