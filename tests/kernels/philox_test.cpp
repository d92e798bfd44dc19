#include "kernels/base/philox.h"

#include <gtest/gtest.h>

#include <cmath>

namespace longstride::kernels {
namespace {

void expect_words(const Philox4& r, std::uint32_t a, std::uint32_t b, std::uint32_t c, std::uint32_t d) {
  EXPECT_EQ(r.word[0], a);
  EXPECT_EQ(r.word[1], b);
  EXPECT_EQ(r.word[2], c);
  EXPECT_EQ(r.word[3], d);
}

// The known answers of Random123's philox4x32-10.
TEST(Philox, GivesTheKnownAnswers) {
  expect_words(philox(0, 0, 0, 0), 0x6627e8d5u, 0xe169c58du, 0xbc57ac4cu, 0x9b00dbd8u);
  expect_words(philox(~0ull, ~0ull, ~0u, ~0u), 0x408f276du, 0x41c83b0eu, 0xa20bc7c6u, 0x6d5451fdu);
  expect_words(philox(0x299f31d0a4093822ull, 0x85a308d3243f6a88ull, 0x13198a2eu, 0x03707344u), 0xd16cfe09u, 0x94fdccebu,
               0x5001e420u, 0x24126ea1u);
}

TEST(Philox, PurposesAndLayersHaveTheirOwnDomains) {
  EXPECT_EQ(domain_of(Purpose::dropout, 5), 2u << 24 | 5u);
  EXPECT_NE(domain_of(Purpose::dropout, 1), domain_of(Purpose::initialise, 1));
  EXPECT_NE(domain_of(Purpose::dropout, 1), domain_of(Purpose::dropout, 2));
}

TEST(Philox, UniformNumbersStayInsideTheOpenInterval) {
  EXPECT_GT(uniform_of(0), 0.0);
  EXPECT_LT(uniform_of(~0u), 1.0);
}

TEST(Philox, NormalNumbersHaveTheMomentsOfTheNormalDistribution) {
  double sum = 0, squares = 0, fourth = 0;
  constexpr int n = 100000;
  for (int i = 0; i < n; ++i) {
    const double x = normal_of(philox(1, static_cast<std::uint64_t>(i), 0, domain_of(Purpose::test, 0)));
    sum += x;
    squares += x * x;
    fourth += x * x * x * x;
  }
  EXPECT_NEAR(sum / n, 0, 0.02);
  EXPECT_NEAR(squares / n, 1, 0.03);
  EXPECT_NEAR(fourth / n, 3, 0.2);
}

}  // namespace
}  // namespace longstride::kernels
