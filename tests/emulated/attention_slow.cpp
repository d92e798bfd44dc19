// Hopper's attention kernels on emulated blocks, in many orders of events.
#include <gtest/gtest.h>

#include "tests/emulated/emulated_attention.h"
#include "tests/emulated/emulated_shapes.h"

namespace longstride::kernels {
namespace {

class EmulatedKernelsOften : public ::testing::TestWithParam<EmulatedShape> {};

TEST_P(EmulatedKernelsOften, GiveTheSameBitsInManyOrders) {
  const EmulatedShape& shape = GetParam();
  EmulatedAttention call(shape.pattern, {1, shape.n, shape.heads, shape.key_size, shape.value_size}, shape.path);
  const std::vector<std::byte> first = call.run(1, 0);
  call.expect_as_good_as_naive(shape.with_sizes());
  for (int seed = 1; seed <= 12; ++seed)
    EXPECT_TRUE(first == call.run(1 + seed % 7, static_cast<std::uint64_t>(seed))) << "seed " << seed;
}

INSTANTIATE_TEST_SUITE_P(Shapes, EmulatedKernelsOften, ::testing::ValuesIn(emulated_shapes()),
                         [](const auto& info) { return info.param.test_name(); });

}  // namespace
}  // namespace longstride::kernels
