#include "kernels/remembered/remembered.h"

#include "tests/ops/op_test.h"

namespace longstride::testing {
namespace {

using kernels::FirstKeyArgs;
using kernels::RememberArgs;

class RememberedTest : public OpTest {};
LONGSTRIDE_OP_TESTS(RememberedTest);

TEST_P(RememberedTest, CountsPositionsUpToTheLengthOfTheMemory) {
  constexpr std::int64_t rows = 300, length = 1000, added = 17;
  std::vector<double> before;
  for (std::int64_t r = 0; r < rows; ++r)
    before.push_back(static_cast<double>(r % 3 == 0 ? length - r / 3 : 5 * r % length));
  const Operand now = with_values({rows}, exact(), before);
  Operand next = result({rows}, exact()), first = filled({rows}, Dtype::i32, -1);
  run(RememberArgs{.now = now, .next = next, .length = length, .added = added}, {&next});
  run(FirstKeyArgs{.now = now, .first_key = first, .length = length}, {&first});
  const std::vector<double> counted = next.found(), hidden = first.found();
  for (std::size_t r = 0; r < before.size(); ++r) {
    EXPECT_EQ(counted[r], std::min<double>(before[r] + added, length)) << r;
    EXPECT_EQ(hidden[r], length - before[r]) << r;
  }
}

}  // namespace
}  // namespace longstride::testing
