#include "kernels/append_rows/append_rows.h"

#include "tests/ops/op_test.h"

namespace longstride::testing {
namespace {

class AppendRowsTest : public OpTest {};
LONGSTRIDE_OP_TESTS(AppendRowsTest);

TEST_P(AppendRowsTest, WritesEveryRowInItsPlaceOfTheRingAndNothingElse) {
  for (const std::int64_t width : {1, 7, 300})
    for (const std::int64_t rows : {1, 3, 5})
      for (const std::int64_t first : {0, 3, 12345}) {
        constexpr std::int64_t groups = 3, capacity = 5;
        const Operand x = normals({groups, rows + 2, width}, 1);
        Operand ring = normals({groups, capacity + 1, width}, 2), number = with_values({1}, Dtype::i64, {0});
        kernels::AppendRowsArgs args{.x = x->slice(1, 1, rows + 1), .ring = ring->slice(1, 0, capacity)};
        args.first = first;
        if (device() == Device::cuda) {  // the kernel reads it
          ctx.queue().copy_to_device(number->data(), &first, sizeof first);
          ctx.queue().synchronize();
          args.first = 0;
          args.first_at = number->as<const std::int64_t>();
        }
        run(args, {&ring});
        std::vector<double> expected = ring.values();
        for (std::int64_t g = 0; g < groups; ++g)
          for (std::int64_t r = 0; r < rows; ++r)
            for (std::int64_t i = 0; i < width; ++i)
              expected[static_cast<std::size_t>((g * (capacity + 1) + (first + r) % capacity) * width + i)] =
                  x.at((g * (rows + 2) + r + 1) * width + i);
        EXPECT_EQ(ring.found(), expected) << width << " " << rows << " " << first;
      }
}

TEST_P(AppendRowsTest, RefusesMoreRowsThanTheRingHas) {
  const Operand x = normals({2, 4, 8}, 1), ring = normals({2, 3, 8}, 2), narrow = normals({2, 4, 7}, 3);
  EXPECT_THROW(ops::run(ctx, kernels::AppendRowsArgs{.x = x, .ring = ring}), InternalError);
  EXPECT_THROW(ops::run(ctx, kernels::AppendRowsArgs{.x = x, .ring = narrow}), InternalError);
}

}  // namespace
}  // namespace longstride::testing
