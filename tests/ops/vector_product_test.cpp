#include "kernels/vector_product/vector_product.h"

#include "tests/ops/op_test.h"

namespace longstride::testing {
namespace {

using kernels::VectorProductArgs;

class VectorProductTest : public OpTest {};
LONGSTRIDE_OP_TESTS(VectorProductTest);

// Also of a slice of a wider matrix, whose rows are unaligned.
TEST_P(VectorProductTest, IsAsExactAsAPlainLoop) {
  for (const auto& [rows, columns] : {std::pair<std::int64_t, std::int64_t>{1, 1}, {3, 33}, {512, 512}, {700, 130}})
    for (const std::int64_t before : {0, 3}) {
      const std::int64_t stride = columns + 2 * before;
      Operand x = normals({rows}, exact(), 1), wide = normals({rows, stride}, 2), y = result({columns}, exact());
      run(VectorProductArgs{x, wide->slice(1, before, before + columns), y}, {&y});
      expect_as_exact_as_plain("y", y, [&, rows = rows, columns = columns](auto zero) {
        using T = decltype(zero);
        std::vector<T> out(static_cast<std::size_t>(columns));
        for (std::int64_t r = 0; r < rows; ++r)
          for (std::int64_t j = 0; j < columns; ++j)
            out[static_cast<std::size_t>(j)] +=
                static_cast<T>(x.at(r)) * static_cast<T>(wide.at(r * stride + before + j));
        return out;
      });
    }
}

TEST_P(VectorProductTest, RefusesOtherSizes) {
  const Operand x = normals({7}, exact(), 1), matrix = normals({8, 6}, 2), y = result({6}, exact());
  EXPECT_THROW(ops::run(ctx, VectorProductArgs{x, matrix, y}), InternalError);
  EXPECT_THROW(ops::run(ctx, VectorProductArgs{y, matrix, x}), InternalError);
}

}  // namespace
}  // namespace longstride::testing
