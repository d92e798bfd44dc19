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

// Six segments of 6: two fill the memory, the others add two rows each to the compressed memory, up to five.
TEST_P(RememberedTest, CountsCompressedRowsOnceTheMemoryIsFull) {
  std::vector<double> counted = {0};
  for (int segment = 0; segment < 6; ++segment) {
    const Operand now = with_values({1}, exact(), {counted.back()});
    Operand next = result({1}, exact());
    run(RememberArgs{.now = now, .next = next, .length = 12, .added = 6, .compressed = 5, .rate = 3}, {&next});
    counted.push_back(next.found()[0]);
  }
  EXPECT_EQ(counted, std::vector<double>({0, 6, 12, 14, 16, 17, 17}));
}

TEST_P(RememberedTest, RefusesPositionsThatMakeNoWholeRow) {
  const Operand now = filled({3}, exact(), 0), next = result({3}, exact());
  EXPECT_THROW(
      ops::run(ctx, RememberArgs{.now = now, .next = next, .length = 4, .added = 4, .compressed = 2, .rate = 3}),
      InternalError);
}

}  // namespace
}  // namespace longstride::testing
