// The two 8-bit floating-point formats of the OCP specification (Micikevicius et al. 2022), and the scale that maps a
// row to one. The scale is a power of two, so dividing by it and multiplying by it are exact: the only error is the
// rounding to the format, and a product may be scaled before or after it is rounded to bf16.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

#include "kernels/base/dtype.h"
#include "kernels/base/host_device.h"

namespace longstride::kernels {

struct Fp8Format {
  int fraction_bits, bias, largest_exponent;  // the largest number is 1.75 * 2^largest_exponent in both formats
  std::uint8_t largest;                       // its code
};

// 448 and 2^-9 are the largest and the smallest positive number of e4m3, 57344 and 2^-16 those of e5m2.
LONGSTRIDE_HOST_DEVICE constexpr Fp8Format fp8_format(Dtype dtype) {
  return dtype == Dtype::e4m3 ? Fp8Format{3, 7, 8, 0x7E} : Fp8Format{2, 15, 15, 0x7B};
}

// The exponent of the smallest power of two by which a row may be divided, if the magnitude of its largest element has
// these bits in f32. Limited so that the power and its inverse are normal numbers; a row of zeros has the smallest.
LONGSTRIDE_HOST_DEVICE constexpr int fp8_scale_exponent(std::uint32_t largest_bits, Dtype dtype) {
  constexpr std::uint32_t fraction_of_largest = 0x600000;  // fraction of 1.75
  const int exponent = static_cast<int>(largest_bits >> 23) - 127 - fp8_format(dtype).largest_exponent +
                       ((largest_bits & 0x7FFFFF) > fraction_of_largest ? 1 : 0);
  return exponent < -126 ? -126 : exponent;
}

// 2^exponent as the bits of an f32.
LONGSTRIDE_HOST_DEVICE constexpr std::uint32_t power_of_two_bits(int exponent) {
  return static_cast<std::uint32_t>(exponent + 127) << 23;
}

// True if these bits are those of an infinity or of no number.
LONGSTRIDE_HOST_DEVICE constexpr bool is_infinite_or_nan(std::uint32_t bits) {
  return (bits & 0x7F800000) == 0x7F800000;
}

// On the host.

// The code of x, rounded to the nearest, ties to the even code; beyond the largest number: that number. What is not a
// number remains so.
inline std::uint8_t fp8_code(float x, Dtype dtype) {
  constexpr std::uint8_t not_a_number = 0x7F;
  const Fp8Format format = fp8_format(dtype);
  if (std::isnan(x)) return not_a_number;
  const auto sign = static_cast<std::uint8_t>(std::signbit(x) ? 0x80 : 0);
  const float magnitude = std::min(std::abs(x), std::ldexp(1.75f, format.largest_exponent));
  // Codes of one exponent are equally far apart, and so are those below the smallest normal number.
  const int exponent = std::max(magnitude == 0 ? 1 - format.bias : std::ilogb(magnitude), 1 - format.bias);
  const auto steps = static_cast<int>(std::nearbyint(std::ldexp(magnitude, format.fraction_bits - exponent)));
  // A carry into the next exponent is a carry in the code.
  return sign | static_cast<std::uint8_t>(((exponent + format.bias - 1) << format.fraction_bits) + steps);
}

inline float fp8_value(std::uint8_t code, Dtype dtype) {
  const Fp8Format format = fp8_format(dtype);
  const int magnitude = code & 0x7F, exponent = magnitude >> format.fraction_bits,
            fraction = magnitude & ((1 << format.fraction_bits) - 1);
  float value = 0;
  if (magnitude <= format.largest)
    value = std::ldexp(static_cast<float>(fraction + (exponent > 0 ? 1 << format.fraction_bits : 0)),
                       (exponent > 0 ? exponent : 1) - format.bias - format.fraction_bits);
  else if (dtype == Dtype::e5m2 && magnitude == format.largest + 1)
    value = std::numeric_limits<float>::infinity();
  else
    value = std::numeric_limits<float>::quiet_NaN();
  return (code & 0x80) != 0 ? -value : value;
}

}  // namespace longstride::kernels
