#include "kernels/global_rows/global_rows.h"

#include "tests/ops/op_test.h"

namespace longstride::testing::global_rows_test {
namespace {

using kernels::GlobalRowsArgs;

class GlobalRowsTest : public OpTest {
 protected:
  Operand empty(const Shape& shape) { return filled(shape, Dtype::i32, -7); }
};
LONGSTRIDE_OP_TESTS(GlobalRowsTest);

// Pair by pair, for rows of few and of many groups, whole, cut and empty.
TEST_P(GlobalRowsTest, AreThoseOfGroupsInTheirOrder) {
  constexpr std::int64_t rows = 5, n = 11;
  const std::vector<std::vector<double>> of_rows = {{0, 0, 0, 1, 1, 2, 3, 3, 4, 4, 4},
                                                    {7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7},
                                                    {2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12},
                                                    {0, 1, 1, 2, 2, 2, 2, 2, 2, 2, 2},
                                                    {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}};
  const std::vector<double> lengths = {11, 11, 11, 6, 0};
  std::vector<double> numbers, ends;
  for (std::size_t r = 0; r < rows; ++r) {
    numbers.insert(numbers.end(), of_rows[r].begin(), of_rows[r].end());
    ends.insert(ends.end(), n, lengths[r]);
  }
  const Operand groups = with_values({rows, n}, Dtype::i32, numbers), end = with_values({rows, 1, n}, Dtype::i32, ends);
  for (const std::int64_t added : {1, 3, 8})
    for (const bool own : {false, true}) {
      Operand seen[2] = {empty({rows, 1, n}), empty({rows, 1, n})};
      Operand among[2] = {empty({rows, 1, added}), empty({rows, 1, added})};
      Operand positions[2] = {empty({rows, 1, added}), empty({rows, 1, added})};
      Operand of_position = empty({rows, n}), of_row = empty({rows, added});
      run(GlobalRowsArgs{.groups = groups,
                         .end = end,
                         .own_group = own,
                         .sight = {.rows_by_positions = {seen[0], seen[1]},
                                   .rows_by_rows = {among[0], among[1]},
                                   .positions_by_rows = {positions[0], positions[1]},
                                   .group_of_position = of_position,
                                   .group_of_row = of_row}},
          {&seen[0], &seen[1], &among[0], &among[1], &positions[0], &positions[1], &of_position, &of_row});
      const auto at = [](Operand& operand, std::int64_t i) { return operand.found()[static_cast<std::size_t>(i)]; };
      for (std::int64_t r = 0; r < rows; ++r) {
        const auto& group = of_rows[static_cast<std::size_t>(r)];
        const auto length = static_cast<std::int64_t>(lengths[static_cast<std::size_t>(r)]);
        const auto all =
            length == 0 ? 1 : static_cast<std::int64_t>(group[static_cast<std::size_t>(length - 1)] - group[0]) + 1;
        const std::int64_t used = std::min(all, added), first = added - used;
        const auto row_of = [&](std::int64_t i) {
          const auto number = static_cast<std::int64_t>(group[static_cast<std::size_t>(i)] - group[0]);
          return i < length ? first + std::min(number, used - 1) : -1;
        };
        for (std::int64_t i = 0; i < n; ++i) {
          EXPECT_EQ(at(of_position, r * n + i), static_cast<double>(row_of(i))) << r << " " << i << " " << added;
          EXPECT_EQ(at(seen[0], r * n + i), static_cast<double>(first));
          EXPECT_EQ(at(seen[1], r * n + i), static_cast<double>(added));
        }
        for (std::int64_t g = 0; g < added; ++g) {
          EXPECT_EQ(at(of_row, r * added + g), static_cast<double>(g));
          EXPECT_EQ(at(among[0], r * added + g), static_cast<double>(first));
          EXPECT_EQ(at(among[1], r * added + g), static_cast<double>(added));
          for (std::int64_t i = 0; i < n; ++i) {
            const bool inside = at(positions[0], r * added + g) <= static_cast<double>(i) &&
                                static_cast<double>(i) < at(positions[1], r * added + g);
            EXPECT_EQ(inside, i < length && (!own || row_of(i) == g)) << r << " " << i << " " << g << " of " << added;
          }
        }
      }
    }
}

TEST_P(GlobalRowsTest, WithoutGroupsSeeARowsOwnPositions) {
  const Operand end = with_values({2, 1, 3}, Dtype::i32, {2, 2, 3, 3, 3, 3});
  Operand from = empty({2, 1, 2}), to = empty({2, 1, 2});
  run(GlobalRowsArgs{.end = end, .sight = {.positions_by_rows = {from, to}}}, {&from, &to});
  EXPECT_EQ(from.found(), std::vector<double>(4, 0));
  EXPECT_EQ(to.found(), (std::vector<double>{2, 2, 3, 3}));
  EXPECT_THROW(ops::run(ctx, GlobalRowsArgs{.sight = {.positions_by_rows = {from, to}}}), InternalError);
}

}  // namespace
}  // namespace longstride::testing::global_rows_test
