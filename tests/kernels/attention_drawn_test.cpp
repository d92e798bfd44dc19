#include "tests/kernels/attention_drawn.h"

#include <gtest/gtest.h>

namespace longstride::kernels {
namespace {

TEST(AttentionDrawn, FewEqualTheirDefinition) {
  for (std::uint64_t number = 0; number < 30; ++number) DrawnAttention(number).expect_equals_definition();
}

}  // namespace
}  // namespace longstride::kernels
