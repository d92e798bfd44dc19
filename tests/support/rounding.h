// Element types on the host: rounding to a type, and its bits. GPU types need no CUDA here.
#pragma once
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <vector>

#include "kernels/base/dtype.h"

namespace longstride::testing {

using kernels::Dtype;

// Half the distance from 1 to the next number.
inline double half_step_of(Dtype dtype) {
  return dtype == Dtype::bf16 ? 0x1p-9 : dtype == Dtype::f16 ? 0x1p-12 : dtype == Dtype::f32 ? 0x1p-25 : 0x1p-54;
}

// To the nearest, ties to even; from double via float, as in kernels.
inline double rounded(double x, Dtype dtype) {
  if (dtype != Dtype::f32 && dtype != Dtype::bf16 && dtype != Dtype::f16) return x;
  const double f = static_cast<float>(x);
  if (dtype == Dtype::f32 || f == 0 || !std::isfinite(f)) return f;
  const int digits = dtype == Dtype::bf16 ? 8 : 11, least = dtype == Dtype::bf16 ? -126 : -14;
  const int exponent = std::max(std::ilogb(f), least) - (digits - 1);
  const auto step = std::bit_cast<double>(static_cast<std::uint64_t>(1023 + exponent) << 52);  // 2^exponent
  const double r = std::nearbyint(f / step) * step;
  const double most = dtype == Dtype::bf16 ? 0x1.FEp127 : 65504;
  return std::abs(r) > most ? std::copysign(std::numeric_limits<double>::infinity(), r) : r;
}

// The bits of a number that is representable.
inline std::uint16_t bits_of(double x, Dtype dtype) {
  const auto f = static_cast<float>(x);
  if (dtype == Dtype::bf16) return static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(f) >> 16);
  const auto sign = static_cast<std::uint16_t>(std::signbit(x) ? 0x8000 : 0);
  if (std::isnan(x)) return 0x7FFF;
  if (std::isinf(x)) return sign | 0x7C00;
  const double magnitude = std::abs(x);
  if (magnitude < 0x1p-14) return static_cast<std::uint16_t>(sign | static_cast<int>(magnitude * 0x1p24));
  const int exponent = std::ilogb(magnitude);
  const int fraction = static_cast<int>(std::ldexp(magnitude, 10 - exponent)) - 1024;
  return static_cast<std::uint16_t>(sign | ((exponent + 15) << 10) | fraction);
}

inline double value_of(std::uint16_t bits, Dtype dtype) {
  if (dtype == Dtype::bf16) return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
  const int exponent = bits >> 10 & 31, fraction = bits & 1023;
  const double magnitude = exponent == 31  ? (fraction != 0 ? std::nan("") : std::numeric_limits<double>::infinity())
                           : exponent == 0 ? std::ldexp(fraction, -24)
                                           : std::ldexp(1024 + fraction, exponent - 25);
  return (bits & 0x8000) != 0 ? -magnitude : magnitude;
}

template <class T>
void put(std::byte* to, T value) {
  std::memcpy(to, &value, sizeof value);
}

inline std::vector<std::byte> encoded(const std::vector<double>& values, Dtype dtype) {
  const std::size_t size = kernels::bytes_of(dtype);
  std::vector<std::byte> raw(values.size() * size);
  for (std::size_t i = 0; i < values.size(); ++i) {
    std::byte* to = raw.data() + i * size;
    if (dtype == Dtype::f64)
      put(to, values[i]);
    else if (dtype == Dtype::f32)
      put(to, static_cast<float>(values[i]));
    else if (dtype == Dtype::u16)
      put(to, static_cast<std::uint16_t>(values[i]));
    else if (size == 2)
      put(to, bits_of(values[i], dtype));
    else if (dtype == Dtype::i64)
      put(to, static_cast<std::int64_t>(values[i]));
    else if (dtype == Dtype::i32)
      put(to, static_cast<std::int32_t>(values[i]));
    else
      put(to, static_cast<std::uint8_t>(values[i]));
  }
  return raw;
}

inline std::vector<double> decoded(const std::vector<std::byte>& raw, Dtype dtype) {
  const auto get = [&](auto zero, std::size_t i) {
    std::memcpy(&zero, raw.data() + i * sizeof zero, sizeof zero);
    return zero;
  };
  std::vector<double> values(raw.size() / kernels::bytes_of(dtype));
  for (std::size_t i = 0; i < values.size(); ++i)
    values[i] = dtype == Dtype::f64             ? get(double{}, i)
                : dtype == Dtype::f32           ? static_cast<double>(get(float{}, i))
                : dtype == Dtype::u16           ? static_cast<double>(get(std::uint16_t{}, i))
                : dtype == Dtype::i32           ? static_cast<double>(get(std::int32_t{}, i))
                : dtype == Dtype::i64           ? static_cast<double>(get(std::int64_t{}, i))
                : kernels::bytes_of(dtype) == 2 ? value_of(get(std::uint16_t{}, i), dtype)
                                                : static_cast<double>(get(std::uint8_t{}, i));
  return values;
}

}  // namespace longstride::testing
