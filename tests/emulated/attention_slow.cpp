// Attention's CUDA kernels on emulated blocks, in many orders of events.
#include <gtest/gtest.h>

#include "tests/emulated/emulated_attention.h"
#include "tests/emulated/emulated_shapes.h"
#include "tests/emulated/random_shapes.h"

namespace longstride::kernels {
namespace {

class EmulatedKernelsOften : public ::testing::TestWithParam<EmulatedShape> {};

TEST_P(EmulatedKernelsOften, GiveTheSameBitsInManyOrders) {
  std::vector<EmulatedRun> runs;
  // The portable kernels are slow here, and wait for little.
  const int count = GetParam().path == AttentionPath::portable ? 2 : 6;
  for (int seed = 0; seed < count; ++seed) runs.push_back({1 + seed, static_cast<std::uint64_t>(seed)});
  expect_right_in_every_run(GetParam(), runs);
}

INSTANTIATE_TEST_SUITE_P(Shapes, EmulatedKernelsOften, ::testing::ValuesIn(emulated_shapes()),
                         [](const auto& test) { return test.param.test_name(); });

class EmulatedRandomShapes : public ::testing::TestWithParam<std::uint32_t> {};

TEST_P(EmulatedRandomShapes, AreAsGoodAsNaive) {
  const EmulatedShape shape = RandomShape(GetParam()).drawn();
  SCOPED_TRACE(shape.with_sizes());
  expect_right_in_every_run(shape, {{1 + static_cast<int>(GetParam()) % 5, GetParam()}});
}

INSTANTIATE_TEST_SUITE_P(Random, EmulatedRandomShapes, ::testing::Range(0u, 40u));

}  // namespace
}  // namespace longstride::kernels
