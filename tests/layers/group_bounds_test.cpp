#include "kernels/group_bounds/group_bounds.h"

#include "tests/ops/op_test.h"

namespace longstride::testing::group_bounds_test {
namespace {

using kernels::GroupBoundsArgs;

class GroupBoundsTest : public OpTest {
 protected:
  // Runs of 1 to `longest`, whose numbers rise by 1 to 3 from `first` on.
  Operand groups(std::int64_t rows, std::int64_t n, std::uint32_t longest, std::int64_t first) {
    std::vector<double> values;
    for (std::int64_t row = 0; row < rows; ++row) {
      std::int64_t left = 0, group = first;
      for (std::int64_t i = 0; i < n; ++i, --left) {
        const auto drawn = kernels::philox(7, static_cast<std::uint64_t>(row * n + i), longest,
                                           kernels::domain_of(kernels::Purpose::test, 2));
        if (left == 0) left = 1 + drawn.word[0] % longest, group += 1 + drawn.word[1] % 3;
        values.push_back(static_cast<double>(group));
      }
    }
    return with_values({rows, n}, Dtype::i32, std::move(values));
  }
};
LONGSTRIDE_OP_TESTS(GroupBoundsTest);

TEST_P(GroupBoundsTest, AreTheEndsOfTheRunThatAPositionIsIn) {
  for (const auto& [rows, n, longest, first] :
       {std::tuple{1, 1, 1u, 0}, {3, 257, 1u, 0}, {3, 300, 9u, -40}, {2, 1000, 400u, 7}, {5, 64, 1000u, 0}}) {
    const Operand group = groups(rows, n, longest, first);
    Operand begin = filled({rows, 1, n}, Dtype::i32, -1), end = filled({rows, 1, n}, Dtype::i32, -1);
    run(GroupBoundsArgs{group, begin, end}, {&begin, &end});
    const std::vector<double> begins = begin.found(), ends = end.found();
    for (std::int64_t i = 0; i < rows * n; ++i) {
      std::int64_t from = i, to = i + 1;
      while (from % n > 0 && group.at(from - 1) == group.at(i)) --from;
      while (to % n > 0 && group.at(to) == group.at(i)) ++to;
      EXPECT_EQ(begins[static_cast<std::size_t>(i)], static_cast<double>(from - i / n * n)) << i << " of " << n;
      EXPECT_EQ(ends[static_cast<std::size_t>(i)], static_cast<double>(to - i / n * n)) << i << " of " << n;
    }
  }
}

TEST_P(GroupBoundsTest, RefusesOtherShapesAndGroupsThatFall) {
  const Operand group = with_values({1, 3}, Dtype::i32, {0, 2, 1}), rising = with_values({1, 3}, Dtype::i32, {0, 1, 1});
  const Operand begin = filled({1, 1, 3}, Dtype::i32, -1), end = filled({1, 1, 3}, Dtype::i32, -1);
  const Operand other = filled({1, 3}, Dtype::i32, -1);
  EXPECT_NO_THROW(ops::run(ctx, GroupBoundsArgs{rising, begin, end}));
  EXPECT_THROW(ops::run(ctx, GroupBoundsArgs{rising, begin, other}), InternalError);
  if (device() != Device::cpu) return;
  EXPECT_THROW(ops::run(ctx, GroupBoundsArgs{group, begin, end}), InternalError);
}

}  // namespace
}  // namespace longstride::testing::group_bounds_test
