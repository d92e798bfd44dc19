// 300 combinations; LONGSTRIDE_TEST_DRAWS asks for more.
#include <gtest/gtest.h>

#include <cstdlib>

#include "tests/kernels/attention_drawn.h"

namespace longstride::kernels {
namespace {

TEST(AttentionDrawnSlow, AllEqualTheirDefinition) {
  const char* asked = std::getenv("LONGSTRIDE_TEST_DRAWS");
  const std::uint64_t draws = asked != nullptr ? std::strtoull(asked, nullptr, 10) : 300;
  for (std::uint64_t number = 0; number < draws; ++number) DrawnAttention(1000 + number).expect_equals_definition();
}

}  // namespace
}  // namespace longstride::kernels
