// Hopper's attention kernels on emulated blocks, in many orders of events.
#include <gtest/gtest.h>

#include "tests/emulated/emulated_attention.h"
#include "tests/emulated/emulated_shapes.h"

namespace longstride::kernels {
namespace {

TEST(EmulatedKernelsOften, GiveTheSameBitsInManyOrders) {
  for (const EmulatedShape& shape : emulated_shapes()) {
    EmulatedAttention call(shape.pattern, {1, shape.n, shape.heads, shape.key_size, shape.value_size}, shape.path);
    const std::vector<std::byte> first = call.run(1, 0);
    call.expect_as_good_as_naive(shape.with_sizes());
    for (int seed = 1; seed <= 12; ++seed)
      EXPECT_TRUE(first == call.run(1 + seed % 7, static_cast<std::uint64_t>(seed)))
          << shape.with_sizes() << ", seed " << seed;
  }
}

}  // namespace
}  // namespace longstride::kernels
