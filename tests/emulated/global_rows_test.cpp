// The kernels of global rows and of their contrast on emulated blocks, compared with the CPU's.
#include <gtest/gtest.h>

#include <vector>

#include "kernels/base/philox.h"
#include "kernels/global_rows/global_rows.h"
#include "kernels/group_contrast/group_contrast.h"

namespace longstride::kernels::global_rows_test {
namespace {

constexpr std::int64_t rows = 3, n = 90;

// Groups of 1 to 11 positions, and the lengths of rows.
struct Groups {
  std::vector<std::int32_t> numbers, ends;

  Groups() {
    for (std::int64_t row = 0; row < rows; ++row)
      for (std::int64_t i = 0, number = row; i < n; ++i) {
        if (i > 0 && i * (row + 3) % 11 < 3) ++number;
        numbers.push_back(static_cast<std::int32_t>(number));
        ends.push_back(static_cast<std::int32_t>(row == 1 ? 47 : n));
      }
  }
  Tensor of() { return Tensor(numbers.data(), Dtype::i32, {rows, n}); }
  Tensor end() { return Tensor(ends.data(), Dtype::i32, {rows, 1, n}); }
};

TEST(EmulatedGlobalRows, EqualTheCpus) {
  Groups groups;
  for (const std::int64_t added : {3, 40}) {
    std::vector<std::int32_t> found[2];
    for (int gpu = 0; gpu < 2; ++gpu) {
      found[gpu].assign(static_cast<std::size_t>(rows * (3 * n + 5 * added)), -7);
      std::int32_t* next = found[gpu].data();
      const auto take = [&](const Shape& shape) {
        const Tensor t(next, Dtype::i32, shape);
        next += shape.count();
        return t;
      };
      const auto bounds = [&](std::int64_t queries) {
        return GlobalBounds{take({rows, 1, queries}), take({rows, 1, queries})};
      };
      const GlobalRowsArgs args{.groups = groups.of(),
                                .end = groups.end(),
                                .own_group = true,
                                .sight = {.rows_by_positions = bounds(n),
                                          .rows_by_rows = bounds(added),
                                          .positions_by_rows = bounds(added),
                                          .group_of_position = take({rows, n}),
                                          .group_of_row = take({rows, added})}};
      gpu != 0 ? cuda::global_rows(args, {}) : cpu::global_rows(args, {});
    }
    EXPECT_EQ(found[1], found[0]) << added;
  }
}

TEST(EmulatedGlobalRows, ContrastsEqualTheCpus) {
  constexpr std::int64_t ids = 20, width = 70;
  Groups groups;
  const auto normals = [](std::int64_t count, std::uint32_t stream) {
    std::vector<float> out;
    for (std::int64_t i = 0; i < count; ++i)
      out.push_back(
          static_cast<float>(normal_of(philox(7, static_cast<std::uint64_t>(i), stream, domain_of(Purpose::test, 0)))));
    return out;
  };
  std::vector<float> table = normals(ids * width, 1), weights;
  std::vector<std::uint16_t> targets;
  for (std::int64_t i = 0; i < rows * n; ++i) {
    targets.push_back(static_cast<std::uint16_t>(i * i % ids));
    weights.push_back(groups.numbers[static_cast<std::size_t>(i)] % 3 == 0 ? 0.0F : 0.5F);
  }
  for (const std::int64_t added : {1, 9, 60}) {
    std::vector<float> z = normals(rows * added * width, 2), e[2], losses[2], dz[2];
    for (int gpu = 0; gpu < 2; ++gpu) {
      e[gpu].resize(z.size()), dz[gpu].resize(z.size()), losses[gpu].resize(static_cast<std::size_t>(rows * added));
      const Shape all = {rows, added, width};
      const GroupContrastArgs args{.groups = groups.of(),
                                   .end = groups.end(),
                                   .targets = Tensor(targets.data(), Dtype::u16, {rows, n}),
                                   .weights = Tensor(weights.data(), Dtype::f32, {rows, n}),
                                   .table = Tensor(table.data(), Dtype::f32, {ids, width}),
                                   .z = Tensor(z.data(), Dtype::f32, all),
                                   .e = Tensor(e[gpu].data(), Dtype::f32, all),
                                   .losses = Tensor(losses[gpu].data(), Dtype::f32, {rows, added}),
                                   .dz = Tensor(dz[gpu].data(), Dtype::f32, all),
                                   .scale = 0.3};
      gpu != 0 ? cuda::group_contrast(args, {}) : cpu::group_contrast(args, {});
    }
    for (std::size_t i = 0; i < losses[0].size(); ++i) ASSERT_NEAR(losses[1][i], losses[0][i], 1e-5) << i;
    for (std::size_t i = 0; i < z.size(); ++i) {
      ASSERT_NEAR(e[1][i], e[0][i], 1e-4) << i;
      ASSERT_NEAR(dz[1][i], dz[0][i], 1e-5) << i;
    }
  }
}

}  // namespace
}  // namespace longstride::kernels::global_rows_test
