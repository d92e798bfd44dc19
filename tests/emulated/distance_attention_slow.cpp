// Hopper's kernels of attention with a distance term on emulated blocks, for random shapes.
#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "tests/emulated/emulated_distance.h"
#include "tests/emulated/random_distance_cases.h"

namespace longstride::testing {
namespace {

void add(std::vector<double>& to, const std::vector<double>& more) {
  for (std::size_t i = 0; i < to.size(); ++i) to[i] += more[i];
}
bool exceed(const std::vector<double>& errors, const std::vector<double>& allowed) {
  for (std::size_t i = 0; i < errors.size(); ++i)
    if (!(errors[i] <= allowed[i])) return true;
  return false;
}

class EmulatedDistanceShapes : public ::testing::TestWithParam<std::uint32_t> {};

// Where one pair makes most of an error, chance decides whose is larger: then the sums over several inputs are
// compared.
TEST_P(EmulatedDistanceShapes, AreAsGoodAsNaive) {
  const DistanceCase c = RandomDistanceCase(GetParam()).drawn();
  SCOPED_TRACE(c.name);
  std::vector<double> errors(EmulatedDistance::part_names.size()), allowed = errors;
  for (std::uint32_t draw = 0; draw == 0 || (draw < 5 && exceed(errors, allowed)); ++draw) {
    EmulatedDistance call(c, draw);
    add(errors, call.errors_of(call.run(3, GetParam())));
    add(allowed, call.allowed_errors());
  }
  expect_at_most(allowed, errors);
}

INSTANTIATE_TEST_SUITE_P(Random, EmulatedDistanceShapes, ::testing::Range(0u, 40u));

}  // namespace
}  // namespace longstride::testing
