// Heads repeated, and scaled by one number a row.
#include "kernels/repeat_heads/repeat_heads.h"
#include "kernels/scale_heads/scale_heads.h"
#include "tests/ops/op_test.h"
#include "tests/support/finite_differences.h"

namespace longstride::testing::heads_test {
namespace {

constexpr std::int64_t batch = 2, n = 9, shared = 3, repeats = 4, heads = shared * repeats, size = 5;

class HeadsTest : public OpTest {
 protected:
  // Columns [2, 2 + heads * size) of wider rows.
  static Tensor within(const Operand& wide, std::int64_t of_heads) {
    return Tensor(wide).slice(-1, 2, 2 + of_heads * size).split_last(of_heads, size);
  }
};
LONGSTRIDE_OP_TESTS(HeadsTest);

TEST_P(HeadsTest, SharedOnesAreReadByTheirHeads) {
  const Operand wide = normals({batch, n, 2 + shared * size}, 1);
  Operand y = result({batch, n, heads, size});
  run(kernels::RepeatHeadsArgs{within(wide, shared), y}, {&y});
  expect_as_exact_as_plain("y", y, [&](auto zero) {
    std::vector<decltype(zero)> out;
    for (std::int64_t i = 0; i < y->count(); ++i) {
      const std::int64_t c = i % size, h = i / size % heads, row = i / size / heads;
      out.push_back(static_cast<decltype(zero)>(wide.at(row * (2 + shared * size) + 2 + h / repeats * size + c)));
    }
    return out;
  });
}

TEST_P(HeadsTest, SharedOnesGetTheSumOfTheirHeadsGradients) {
  const Operand wide = normals({batch, n, 2 + heads * size}, 1);
  Operand dx = result({batch, n, shared, size});
  run(kernels::RepeatHeadsBackwardArgs{within(wide, heads), dx}, {&dx});
  expect_as_exact_as_plain("dx", dx, [&](auto zero) {
    using T = decltype(zero);
    std::vector<T> out;
    for (std::int64_t i = 0; i < dx->count(); ++i) {
      T sum = 0;
      for (std::int64_t r = 0; r < repeats; ++r) {
        const std::int64_t h = i / size % shared * repeats + r, row = i / size / shared;
        sum += static_cast<T>(wide.at(row * (2 + heads * size) + 2 + h * size + i % size));
      }
      out.push_back(sum);
    }
    return out;
  });
}

TEST_P(HeadsTest, ScaledOnesAreAsExactAsPlainLoops) {
  for (const bool of_head : {false, true}) {
    const Operand wide = normals({batch, n, 2 + shared * size}, 1), dy = normals({batch, n, shared, size}, 2),
                  add = normals({batch, n, shared, size}, 3),
                  scale = normals(of_head ? Shape{shared} : Shape{batch, n, shared}, exact(), 4);
    Operand y = result({batch, n, shared, size}), dx = normals({batch, n, shared, size}, 5),
            dscale = result({batch, n, shared}, exact());
    const Tensor x = within(wide, shared);
    run(kernels::ScaleHeadsArgs{x, scale, y, of_head ? Tensor(add) : Tensor{}}, {&y});
    run(kernels::ScaleHeadsBackwardArgs{dy, x, scale, dx, dscale, of_head}, {&dx, &dscale});
    const auto plain = [&](auto zero) {
      using T = decltype(zero);
      struct {
        std::vector<T> y, dx, dscale;
      } out;
      for (std::int64_t row = 0; row < batch * n * shared; ++row) {
        const T s = static_cast<T>(scale.at(of_head ? row % shared : row));
        T sum = 0;
        for (std::int64_t c = 0; c < size; ++c) {
          const std::int64_t i = row * size + c;
          const T value = static_cast<T>(wide.at(row / shared * (2 + shared * size) + 2 + row % shared * size + c));
          out.y.push_back((of_head ? static_cast<T>(add.at(i)) : T(0)) + s * value);
          out.dx.push_back((of_head ? static_cast<T>(dx.at(i)) : T(0)) + s * static_cast<T>(dy.at(i)));
          sum += static_cast<T>(dy.at(i)) * value;
        }
        out.dscale.push_back(sum);
      }
      return out;
    };
    expect_as_exact_as_plain("y", y, [&](auto zero) { return plain(zero).y; });
    expect_as_exact_as_plain("dx", dx, [&](auto zero) { return plain(zero).dx; });
    expect_as_exact_as_plain("dscale", dscale, [&](auto zero) { return plain(zero).dscale; });
  }
}

TEST_P(HeadsTest, ScaledOnesMayTakeThePlaceOfTheirInput) {
  const Operand scale = normals({batch, n, shared}, exact(), 4), x = normals({batch, n, shared, size}, 1),
                in_place = normals({batch, n, shared, size}, 1), y = result({batch, n, shared, size});
  ops::run(ctx, kernels::ScaleHeadsArgs{x, scale, y});
  ops::run(ctx, kernels::ScaleHeadsArgs{in_place, scale, in_place});
  EXPECT_EQ(in_place.raw(), y.raw());
}

TEST_P(HeadsTest, RefuseOtherShapes) {
  const Operand x = normals({batch, n, shared, size}, 1), y = result({batch, n, heads + 1, size}),
                scale = normals({heads}, exact(), 2);
  EXPECT_THROW(ops::run(ctx, kernels::RepeatHeadsArgs{x, y}), InternalError);
  EXPECT_THROW(ops::run(ctx, kernels::ScaleHeadsArgs{x, scale, x}), InternalError);
}

}  // namespace
}  // namespace longstride::testing::heads_test
