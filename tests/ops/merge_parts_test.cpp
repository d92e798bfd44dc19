#include "kernels/merge_parts/merge_parts.h"

#include <limits>

#include "tests/ops/op_test.h"

namespace longstride::testing::merge_parts_test {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();

class MergePartsTest : public OpTest {
 protected:
  struct Sizes {
    std::int64_t pieces, batch, n, heads, size;
    std::int64_t rows() const { return batch * n * heads; }
    // The element of lse of a row (sequence, position, head).
    std::int64_t of_lse(std::int64_t row) const {
      return (row / heads / n * heads + row % heads) * n + row / heads % n;
    }
  };
  // Some rows see no key in some pieces, every seventh in none; what such pieces hold is not read.
  std::pair<Operand, Operand> drawn(const Sizes& s) {
    const Operand x = normals({s.pieces * s.batch, s.n, s.heads, s.size}, 1),
                  y = normals({s.pieces, s.batch, s.heads, s.n}, exact(), 2, 3);
    std::vector<double> parts = x.values(), lse = y.values();
    for (std::int64_t p = 0; p < s.pieces; ++p)
      for (std::int64_t row = 0; row < s.rows(); ++row)
        if (row % 7 == 0 || (row + p) % 5 == 0) {
          lse[static_cast<std::size_t>(p * s.rows() + s.of_lse(row))] = -infinity;
          for (std::int64_t d = 0; d < s.size; ++d)
            parts[static_cast<std::size_t>((p * s.rows() + row) * s.size + d)] = std::nan("");
        }
    parts.front() = 0;  // an operand whose first element is NaN is an output
    return {with_values(x->shape(), compute(), std::move(parts)), with_values(y->shape(), exact(), std::move(lse))};
  }

  // o, or lse if `of_lse`.
  template <class T>
  static std::vector<T> plain(const Sizes& s, const Operand& parts, const Operand& lse, bool of_lse) {
    std::vector<T> o(static_cast<std::size_t>(s.rows() * s.size)), merged(static_cast<std::size_t>(s.rows()));
    for (std::int64_t row = 0; row < s.rows(); ++row) {
      const auto piece = [&](std::int64_t p) { return static_cast<T>(lse.at(p * s.rows() + s.of_lse(row))); };
      T top = piece(0), sum = 0;
      for (std::int64_t p = 1; p < s.pieces; ++p) top = std::max(top, piece(p));
      for (std::int64_t p = 0; p < s.pieces; ++p) sum += std::isinf(piece(p)) ? 0 : std::exp(piece(p) - top);
      const T all = std::isinf(top) ? top : top + std::log(sum);
      merged[static_cast<std::size_t>(s.of_lse(row))] = all;
      for (std::int64_t p = 0; p < s.pieces; ++p)
        for (std::int64_t d = 0; d < s.size && !std::isinf(piece(p)); ++d)
          o[static_cast<std::size_t>(row * s.size + d)] +=
              std::exp(piece(p) - all) * static_cast<T>(parts.at((p * s.rows() + row) * s.size + d));
    }
    return of_lse ? merged : o;
  }
};
LONGSTRIDE_OP_TESTS(MergePartsTest);

TEST_P(MergePartsTest, IsAsExactAsAPlainLoop) {
  for (const Sizes& s : {Sizes{1, 1, 1, 1, 1}, Sizes{3, 2, 13, 3, 24}, Sizes{2, 1, 70, 2, 7}, Sizes{8, 1, 33, 4, 64}}) {
    const auto [parts, lse_parts] = drawn(s);
    Operand o = result({s.batch, s.n, s.heads, s.size}), lse = result({s.batch, s.heads, s.n}, exact());
    run(kernels::MergePartsArgs{parts, lse_parts, o, lse}, {&o, &lse});
    expect_as_exact_as_plain("o", o, [&](auto zero) { return plain<decltype(zero)>(s, parts, lse_parts, false); });
    const std::vector<double> found = lse.found(), exactly = plain<double>(s, parts, lse_parts, true);
    for (std::size_t i = 0; i < found.size(); ++i)
      if (std::isinf(exactly[i]))
        EXPECT_EQ(found[i], -infinity);
      else
        EXPECT_NEAR(found[i], exactly[i], exact() == Dtype::f64 ? 1e-13 : 4e-6);
  }
}

TEST_P(MergePartsTest, OnePieceStaysAsItIs) {
  Operand parts = normals({2, 9, 3, 8}, 1), lse_parts = normals({1, 2, 3, 9}, exact(), 2);
  Operand o = result({2, 9, 3, 8}), lse = result({2, 3, 9}, exact());
  run(kernels::MergePartsArgs{parts, lse_parts, o, lse}, {&o, &lse});
  EXPECT_EQ(o.raw(), parts.raw());
  EXPECT_EQ(lse.raw(), lse_parts.raw());
}

TEST_P(MergePartsTest, RefusesPiecesThatDoNotFit) {
  const Operand parts = normals({4, 5, 2, 3}, 1), lse_parts = normals({2, 2, 2, 5}, exact(), 2);
  const Operand o = normals({2, 5, 2, 3}, 3), lse = normals({2, 2, 5}, exact(), 4),
                other = normals({2, 5, 2}, exact(), 5);
  EXPECT_THROW(ops::run(ctx, kernels::MergePartsArgs{parts, lse_parts, o, other}), InternalError);
  EXPECT_THROW(ops::run(ctx, kernels::MergePartsArgs{o, lse_parts, parts, lse}), InternalError);
}

}  // namespace
}  // namespace longstride::testing::merge_parts_test
