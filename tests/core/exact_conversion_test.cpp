// Values of a checkpoint in another type: all of them, or a refusal.
#include "framework/core/exact_conversion.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "framework/core/errors.h"
#include "tests/support/rounding.h"

namespace longstride {
namespace {

using testing::value_of;

template <class T>
Tensor flat(std::vector<T>& values, Dtype dtype) {
  return {values.data(), dtype, {std::ssize(values)}};
}

std::vector<std::uint16_t> all_bits() {
  std::vector<std::uint16_t> bits(1 << 16);
  for (std::size_t i = 0; i < bits.size(); ++i) bits[i] = static_cast<std::uint16_t>(i);
  return bits;
}

// True if f32 values are representable, and then their bits must come back.
bool holds(Dtype dtype, std::vector<float> values) {
  std::vector<std::uint16_t> narrow(values.size());
  if (!convert_exactly(flat(values, Dtype::f32), flat(narrow, dtype))) return false;
  std::vector<float> back(values.size());
  EXPECT_TRUE(convert_exactly(flat(narrow, dtype), flat(back, Dtype::f32)));
  for (std::size_t i = 0; i < back.size(); ++i)
    EXPECT_EQ(std::bit_cast<std::uint32_t>(back[i]), std::bit_cast<std::uint32_t>(values[i])) << values[i];
  return true;
}

TEST(ExactConversion, Every16BitValueSurvivesF32AndBack) {
  for (const Dtype dtype : {Dtype::bf16, Dtype::f16}) {
    std::vector<std::uint16_t> bits = all_bits(), back(bits.size());
    std::vector<float> wide(bits.size());
    ASSERT_TRUE(convert_exactly(flat(bits, dtype), flat(wide, Dtype::f32)));
    ASSERT_TRUE(convert_exactly(flat(wide, Dtype::f32), flat(back, dtype)));
    EXPECT_EQ(back, bits);
    for (std::size_t i = 0; i < bits.size(); ++i) {
      const double expected = value_of(bits[i], dtype);
      if (std::isnan(expected))
        EXPECT_TRUE(std::isnan(wide[i])) << i;
      else
        EXPECT_EQ(static_cast<double>(wide[i]), expected) << i;
      EXPECT_EQ(std::signbit(wide[i]), (i & 0x8000) != 0) << i;
    }
  }
}

TEST(ExactConversion, AValueThatWouldBeRoundedIsRefused) {
  const float inf = std::numeric_limits<float>::infinity();
  for (const float x : {0.0f, -0.0f, 1.0f, -256.0f, 1.0f + 0x1p-7f, inf, -inf}) {
    EXPECT_TRUE(holds(Dtype::bf16, {1, x})) << x;
    EXPECT_TRUE(holds(Dtype::f16, {1, x})) << x;
  }
  for (const float x : {1 + 0x1p-8f, 257.0f, 0.1f, std::numeric_limits<float>::max(), 0x1p-149f})
    EXPECT_FALSE(holds(Dtype::bf16, {1, x})) << x;
  for (const float x : {65504.0f, 0x1p-14f, 0x1p-24f, 1023 * 0x1p-24f, 1 + 0x1p-10f, 257.0f})
    EXPECT_TRUE(holds(Dtype::f16, {1, x})) << x;
  for (const float x : {65536.0f, 65505.0f, 0x1p-25f, 1.5f * 0x1p-24f, 1023.5f * 0x1p-24f, 1 + 0x1p-11f, 0x1p100f})
    EXPECT_FALSE(holds(Dtype::f16, {1, x})) << x;
}

TEST(ExactConversion, Between16BitTypesOnlyWhatBothHave) {
  std::vector<std::uint16_t> from = {0x3F80, 0xC0A0}, to(2);  // 1 and -5 in bf16
  ASSERT_TRUE(convert_exactly(flat(from, Dtype::bf16), flat(to, Dtype::f16)));
  EXPECT_EQ(value_of(to[0], Dtype::f16), 1);
  EXPECT_EQ(value_of(to[1], Dtype::f16), -5);
  from[0] = 0x4780;  // 65536
  EXPECT_FALSE(convert_exactly(flat(from, Dtype::bf16), flat(to, Dtype::f16)));
  from = {0x3C01, 0x3C00};  // 1 + 2^-10 in f16
  EXPECT_FALSE(convert_exactly(flat(from, Dtype::f16), flat(to, Dtype::bf16)));
}

TEST(ExactConversion, OtherTypesAndCountsAreInternalErrors) {
  std::vector<std::uint16_t> three(3), two(2);
  EXPECT_THROW(convert_exactly(flat(three, Dtype::bf16), flat(two, Dtype::bf16)), InternalError);
  EXPECT_THROW(convert_exactly(flat(two, Dtype::u16), flat(two, Dtype::bf16)), InternalError);
}

}  // namespace
}  // namespace longstride
