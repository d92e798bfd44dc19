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
    run(RememberArgs{.now = now, .next = next, .length = 12, .added = 6, .compressed = 5, .rate = 3, .block = 3},
        {&next});
    counted.push_back(next.found()[0]);
  }
  EXPECT_EQ(counted, std::vector<double>({0, 6, 12, 14, 16, 17, 17}));
}

// The document that a segment of 6 ends with. Where 4 of its rows leave the memory, one block of 3 does.
TEST_P(RememberedTest, CountsTheLastDocumentAlone) {
  const std::vector<double> before = {14, 14, 14, 4, 10, 12, 0}, begins = {0, 2, 5, 0, 0, 0, 3};
  std::vector<double> begin;
  for (const double last : begins)
    for (int i = 0; i < 6; ++i) begin.push_back(i < 5 ? 0 : last);
  const auto rows = std::ssize(before);
  const Operand now = with_values({rows}, exact(), before), of = with_values({rows, 1, 6}, Dtype::i32, begin);
  for (const std::int64_t block : {3, 6}) {
    Operand next = result({rows}, exact());
    run(RememberArgs{.now = now,
                     .next = next,
                     .length = 12,
                     .added = 6,
                     .compressed = 5,
                     .rate = 3,
                     .block = block,
                     .begin = of},
        {&next});
    EXPECT_EQ(next.found(), std::vector<double>({16, 4, 1, 10, block == 3 ? 13.0 : 12.0, 14, 3})) << block;
  }
}

TEST_P(RememberedTest, BoundsAreThoseOfDocumentsWithWhatIsRemembered) {
  const Operand now = with_values({2}, exact(), {5, 0});
  const Operand begin = with_values({2, 1, 4}, Dtype::i32, {0, 0, 2, 2, 0, 1, 1, 3}),
                end = with_values({2, 1, 4}, Dtype::i32, {2, 2, 4, 4, 1, 3, 3, 4});
  Operand key_begin = result({2, 1, 4}, Dtype::i32), key_end = result({2, 1, 4}, Dtype::i32);
  run(kernels::KeyBoundsArgs{now, begin, end, key_begin, key_end, 20}, {&key_begin, &key_end});
  EXPECT_EQ(key_begin.found(), std::vector<double>({15, 15, 22, 22, 20, 21, 21, 23}));
  EXPECT_EQ(key_end.found(), std::vector<double>({22, 22, 24, 24, 21, 23, 23, 24}));
  run(kernels::KeyBoundsArgs{{}, begin, end, key_begin, key_end}, {&key_begin, &key_end});
  EXPECT_EQ(key_begin.found(), begin.values());
}

TEST_P(RememberedTest, RefusesPositionsThatMakeNoWholeRow) {
  const Operand now = filled({3}, exact(), 0), next = result({3}, exact());
  EXPECT_THROW(
      ops::run(ctx,
               RememberArgs{.now = now, .next = next, .length = 4, .added = 4, .compressed = 2, .rate = 3, .block = 3}),
      InternalError);
}

}  // namespace
}  // namespace longstride::testing
