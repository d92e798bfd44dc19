// Hopper's attention kernels, forward and backward, run on emulated blocks.
#include <gtest/gtest.h>

#include <cctype>
#include <string>

#include "tests/emulated/emulated_attention.h"
#include "tests/emulated/emulated_shapes.h"

namespace longstride::kernels {
namespace {

class EmulatedKernels : public ::testing::TestWithParam<EmulatedShape> {};

// Whatever the order of events and the division between blocks, the bits are the same.
TEST_P(EmulatedKernels, AreAsGoodAsNaiveInEveryOrder) {
  const EmulatedShape& shape = GetParam();
  EmulatedAttention call(shape.pattern, {1, shape.n, shape.heads, shape.key_size, shape.value_size}, shape.path);
  const std::vector<std::byte> first = call.run(2, 1);
  call.expect_as_good_as_naive(shape.with_sizes());
  EXPECT_TRUE(first == call.run(5, 2)) << "other bits";
}

INSTANTIATE_TEST_SUITE_P(Shapes, EmulatedKernels, ::testing::ValuesIn(emulated_shapes()), [](const auto& info) {
  std::string name;
  for (char c : info.param.with_sizes()) name += std::isalnum(static_cast<unsigned char>(c)) != 0 ? c : '_';
  return name;
});

}  // namespace
}  // namespace longstride::kernels
