#include "tests/kernels/attention_drawn.h"

#include <gtest/gtest.h>

namespace longstride::kernels {
namespace {

TEST(AttentionDrawn, FewEqualTheirDefinition) {
  const Threads one(1);
  for (std::uint64_t number = 0; number < 20; ++number) DrawnAttention(number).expect_equals_definition();
}

}  // namespace
}  // namespace longstride::kernels
