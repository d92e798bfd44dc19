// fp32 to the GPU's two narrow types, rounded to nearest even as the GPU does it: for weights that the host uploads.
#pragma once
#include <bit>
#include <cstdint>

#include "framework/core/tensor.h"

namespace longstride {

inline std::uint16_t bf16_bits(float x) {
  const auto bits = std::bit_cast<std::uint32_t>(x);
  if ((bits & 0x7FFFFFFFu) > 0x7F800000u) return 0x7FFF;  // NaN
  return static_cast<std::uint16_t>((bits + 0x7FFFu + ((bits >> 16) & 1u)) >> 16);
}

inline std::uint16_t f16_bits(float x) {
  const auto bits = std::bit_cast<std::uint32_t>(x);
  const auto sign = static_cast<std::uint16_t>((bits >> 16) & 0x8000u);
  const std::uint32_t magnitude = bits & 0x7FFFFFFFu;
  if (magnitude > 0x7F800000u) return 0x7FFF;                                       // NaN
  if (magnitude >= 0x477FF000u) return static_cast<std::uint16_t>(sign | 0x7C00u);  // rounds to infinity
  if (magnitude < 0x33000001u) return sign;                                         // rounds to 0
  if (magnitude < 0x38800000u) {                                                    // subnormal: units of 2^-24
    const std::uint32_t fraction = (magnitude & 0x7FFFFFu) | 0x800000u;
    const std::uint32_t shift = 126u - (magnitude >> 23);
    const std::uint32_t whole = fraction >> shift, rest = fraction & ((1u << shift) - 1u), half = 1u << (shift - 1u);
    return static_cast<std::uint16_t>(sign | (whole + (rest > half || (rest == half && (whole & 1u)) ? 1u : 0u)));
  }
  const std::uint32_t rebased = magnitude - 0x38000000u;  // the exponent's bias is 15, not 127
  return static_cast<std::uint16_t>(sign | ((rebased + 0xFFFu + ((rebased >> 13) & 1u)) >> 13));
}

// Host memory, equal counts; `to` is bf16 or f16.
void narrow(const Tensor& from, const Tensor& to);

}  // namespace longstride
