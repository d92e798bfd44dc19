// The CUDA kernels of attention with a distance term on emulated blocks.
#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "tests/emulated/emulated_distance.h"
#include "tests/emulated/random_distance_cases.h"
#include "tests/ops/distance_cases.h"

namespace longstride::testing {
namespace {

class EmulatedDistanceShapes : public ::testing::TestWithParam<std::uint32_t> {};

TEST_P(EmulatedDistanceShapes, AreAsGoodAsNaive) {
  expect_as_good_as_naive(RandomDistanceCase(GetParam()).drawn(), Dtype::bf16, kernels::AttentionPath::sm90,
                          GetParam());
}

INSTANTIATE_TEST_SUITE_P(Random, EmulatedDistanceShapes, ::testing::Range(0u, 40u));

class EmulatedPortableDistances : public ::testing::TestWithParam<std::size_t> {};

TEST_P(EmulatedPortableDistances, AreAsGoodAsNaive) {
  // Cases with spans are in 16 bits: in f32 dP and delta cancel to what the order of sums leaves (tests/ops).
  constexpr Dtype types[] = {Dtype::bf16, Dtype::f32, Dtype::f16};
  expect_as_good_as_naive(distance_cases[GetParam()], types[GetParam() % 3], kernels::AttentionPath::portable, 3);
}

INSTANTIATE_TEST_SUITE_P(Cases, EmulatedPortableDistances, ::testing::Range(std::size_t{0}, distance_cases.size()));

}  // namespace
}  // namespace longstride::testing
