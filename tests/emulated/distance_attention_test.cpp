// The CUDA kernels of attention with a distance term, forward and backward, run on emulated blocks.
#include <gtest/gtest.h>

#include <cctype>
#include <string>
#include <vector>

#include "tests/emulated/emulated_distance.h"
#include "tests/ops/distance_cases.h"

namespace longstride::testing {
namespace {

std::vector<DistanceCase> cases_for_hopper() {
  std::vector<DistanceCase> cases;
  for (const DistanceCase& c : distance_cases)
    if (c.p == 0 && c.size > 32 && c.size <= 64 && c.value_size > 32 && c.value_size <= 64) cases.push_back(c);
  return cases;
}

std::string name_of_case(const ::testing::TestParamInfo<DistanceCase>& test) {
  std::string name;
  for (char c : test.param.name) name += std::isalnum(static_cast<unsigned char>(c)) != 0 ? c : '_';
  return name;
}

class EmulatedDistanceKernels : public ::testing::TestWithParam<DistanceCase> {};

// Whatever the order of events and the division between blocks, the bits are the same.
TEST_P(EmulatedDistanceKernels, AreAsGoodAsNaiveInEveryOrder) {
  EmulatedDistance call(GetParam(), 0, Dtype::bf16, kernels::AttentionPath::sm90);
  const DistanceResult<double> first = call.run(2, 1), other = call.run(5, 2);
  expect_as_good_as_naive(GetParam(), Dtype::bf16, kernels::AttentionPath::sm90, 1, call.errors_of(first));
  const auto all = [](const DistanceResult<double>& r) {
    return std::vector{r.o, r.lse, r.dq, r.dk, r.dv, r.dtable, r.dcontent_bias, r.dposition_bias, r.dspan};
  };
  EXPECT_TRUE(all(first) == all(other)) << "other bits";
}

INSTANTIATE_TEST_SUITE_P(Cases, EmulatedDistanceKernels, ::testing::ValuesIn(cases_for_hopper()), name_of_case);

// The kernels for other GPUs; test_emulated_slow has all cases.
TEST(EmulatedPortableDistance, IsAsGoodAsNaive) {
  for (const DistanceCase& c : distance_cases)
    if (c.name == "odd sizes") expect_as_good_as_naive(c, Dtype::f16, kernels::AttentionPath::portable, 1);
}

}  // namespace
}  // namespace longstride::testing
