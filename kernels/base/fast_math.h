// Exponentials written so that the compiler vectorises the loop around them: no branch, no table, no call. The C
// library's exp is a function call per element and would dominate the time of every softmax and GELU.
#pragma once
#include <bit>
#include <cstdint>

namespace longstride::kernels {

// exp(x) to about 1 ulp. exp(-infinity) is exactly 0, so a masked score needs no special case; overflow gives
// infinity, NaN gives NaN, and results below the smallest normal number are rounded like any other.
//
// exp(x) = 2^n exp(r) with n = round(x / ln 2) and |r| <= ln(2) / 2; exp(r) = 1 + r + r^2 P(r), with P a minimax
// polynomial. Adding 1.5 * 2^23 leaves n in the low bits of the sum. 2^n is applied as two factors, because near the
// ends of the range one factor alone is not a normal number.
inline float exp_of(float x) {
  constexpr float log2_e = 1.44269504088896341f;
  constexpr float ln2_high = 0.693359375f, ln2_low = -2.12194440e-4f;  // n * ln2_high is exact
  constexpr float round_bias = 12582912.0f;
  x = x < -104.0f ? -104.0f : x;
  x = x > 89.0f ? 89.0f : x;
  const float biased = x * log2_e + round_bias;
  const float whole = biased - round_bias;
  const float r = (x - whole * ln2_high) - whole * ln2_low;
  float p = 0.0013814593662865420f;  // largest error of the polynomial: 3.1e-9
  p = p * r + 0.0083687173512672045f;
  p = p * r + 0.041668388149536351f;
  p = p * r + 0.16666520626639196f;
  p = p * r + 0.49999993447277386f;
  p = p * (r * r) + r + 1.0f;
  const std::int32_t n = std::bit_cast<std::int32_t>(biased) - std::bit_cast<std::int32_t>(round_bias);
  const std::int32_t half = n >> 1;
  const float scale_1 = std::bit_cast<float>((half + 127) << 23);
  const float scale_2 = std::bit_cast<float>((n - half + 127) << 23);
  return p * scale_1 * scale_2;
}

inline double exp_of(double x) {
  constexpr double log2_e = 1.44269504088896340736;
  constexpr double ln2_high = 0x1.62e42fee00000p-1, ln2_low = 0x1.a39ef35793c76p-33;
  constexpr double round_bias = 6755399441055744.0;  // 1.5 * 2^52
  x = x < -746.0 ? -746.0 : x;
  x = x > 710.0 ? 710.0 : x;
  const double biased = x * log2_e + round_bias;
  const double whole = biased - round_bias;
  const double r = (x - whole * ln2_high) - whole * ln2_low;
  double p = 0x1.ad7f77c8b5088p-26;  // largest error of the polynomial: 3.6e-18
  p = p * r + 0x1.28ad73a26bef2p-22;
  p = p * r + 0x1.71df254e1df57p-19;
  p = p * r + 0x1.a0199a0b67aa2p-16;
  p = p * r + 0x1.a01a012a58a76p-13;
  p = p * r + 0x1.6c16c1842a7b5p-10;
  p = p * r + 0x1.1111111127be6p-7;
  p = p * r + 0x1.555555555087ap-5;
  p = p * r + 0x1.55555555554fap-3;
  p = p * r + 0x1.000000000000ap-1;
  p = p * (r * r) + r + 1.0;
  const std::int64_t n = std::bit_cast<std::int64_t>(biased) - std::bit_cast<std::int64_t>(round_bias);
  const std::int64_t half = n >> 1;
  const double scale_1 = std::bit_cast<double>((half + 1023) << 52);
  const double scale_2 = std::bit_cast<double>((n - half + 1023) << 52);
  return p * scale_1 * scale_2;
}

// 1 / (1 + exp(-x)).
template <class T>
inline T sigmoid_of(T x) {
  return T(1) / (T(1) + exp_of(-x));
}

}  // namespace longstride::kernels
