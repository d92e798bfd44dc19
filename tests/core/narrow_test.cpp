#include "framework/core/narrow.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "kernels/base/philox.h"

namespace longstride {
namespace {

// The value of 16 bits with this many bits of fraction; the rest but the sign is the exponent.
double value_of(std::uint16_t bits, int fraction_bits) {
  const int exponent_bits = 15 - fraction_bits, bias = (1 << (exponent_bits - 1)) - 1;
  const int exponent = (bits & 0x7FFF) >> fraction_bits, fraction = bits & ((1 << fraction_bits) - 1);
  const double sign = bits & 0x8000 ? -1 : 1;
  if (exponent == (1 << exponent_bits) - 1) return fraction ? NAN : sign * INFINITY;
  if (exponent == 0) return sign * std::ldexp(fraction, 1 - bias - fraction_bits);
  return sign * std::ldexp(fraction + (1 << fraction_bits), exponent - bias - fraction_bits);
}

// x lies between its neighbours and goes to the nearer; to the even one when both are equally near.
void expect_nearest(float x, std::uint16_t bits, int fraction_bits) {
  const double value = value_of(bits, fraction_bits);
  if (std::isinf(value)) return;  // tested apart
  const double error = std::abs(value - static_cast<double>(x));
  for (int step : {-1, 1}) {
    const auto other_bits = static_cast<std::uint16_t>(bits + step);
    if ((other_bits & 0x8000) != (bits & 0x8000)) continue;  // past zero
    const double other = std::abs(value_of(other_bits, fraction_bits) - static_cast<double>(x));
    EXPECT_TRUE(error < other || (error == other && bits % 2 == 0)) << x;
  }
}

TEST(Narrow, EveryValueOfTheNarrowTypeComesBackAsItWas) {
  for (int i = 0; i < 0x10000; ++i) {
    const auto bits = static_cast<std::uint16_t>(i);
    if (const double half = value_of(bits, 10); !std::isnan(half)) {
      EXPECT_EQ(f16_bits(static_cast<float>(half)), bits);
    }
    if (const double brain = value_of(bits, 7); !std::isnan(brain)) {
      EXPECT_EQ(bf16_bits(static_cast<float>(brain)), bits);
    }
  }
}

TEST(Narrow, RoundsToTheNearestAndTiesToEven) {
  for (std::uint64_t i = 0; i < 200000; ++i) {
    const auto r = kernels::philox(1, i, 0, kernels::domain_of(kernels::Purpose::test, 0));
    const float x = std::ldexp(static_cast<float>(kernels::normal_of(r)), static_cast<int>(r.word[2] % 40) - 28);
    expect_nearest(x, f16_bits(x), 10);
    expect_nearest(x, bf16_bits(x), 7);
  }
  for (int i = 1; i < 0x7BFF; ++i) {  // halfway between two neighbours
    const auto bits = static_cast<std::uint16_t>(i);
    const auto middle =
        static_cast<float>((value_of(bits, 10) + value_of(static_cast<std::uint16_t>(bits + 1), 10)) / 2);
    EXPECT_EQ(f16_bits(middle) % 2, 0) << middle;
    expect_nearest(middle, f16_bits(middle), 10);
  }
}

TEST(Narrow, WhatIsBeyondItsRangeIsInfiniteOrZero) {
  EXPECT_EQ(f16_bits(65519.996f), 0x7BFF);
  EXPECT_EQ(f16_bits(65520.0f), 0x7C00);
  EXPECT_EQ(f16_bits(-1e30f), 0xFC00);
  EXPECT_EQ(f16_bits(std::ldexp(1.0f, -25)), 0);
  EXPECT_EQ(f16_bits(-std::ldexp(1.0f, -30)), 0x8000);
  EXPECT_EQ(bf16_bits(std::numeric_limits<float>::max()), 0x7F80);
  EXPECT_TRUE(std::isnan(value_of(f16_bits(NAN), 10)));
  EXPECT_TRUE(std::isnan(value_of(bf16_bits(NAN), 7)));
}

}  // namespace
}  // namespace longstride
