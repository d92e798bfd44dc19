// The parts of a compressed memory: pooled rows, the most used rows, softmax without a mask, squared errors.
#include <algorithm>
#include <numeric>

#include "kernels/most_used_rows/most_used_rows.h"
#include "kernels/pool_rows/pool_rows.h"
#include "kernels/softmax/softmax.h"
#include "kernels/squared_error/squared_error.h"
#include "tests/ops/op_test.h"

namespace longstride::testing {
namespace {

using kernels::MostUsedRowsArgs;
using kernels::PoolRowsArgs;
using kernels::SoftmaxArgs;
using kernels::SoftmaxBackwardArgs;
using kernels::SquaredErrorArgs;

class CompressionTest : public OpTest {};
LONGSTRIDE_OP_TESTS(CompressionTest);

// Rows [begin, end) of every group of `of` (groups, rows, width).
Tensor rows_of(const Operand& of, std::int64_t begin, std::int64_t end) { return of->slice(1, begin, end); }

TEST_P(CompressionTest, PoolsNeighbouringRows) {
  for (const std::int64_t width : {1, 7, 64, 130})
    for (const std::int64_t rate : {1, 2, 3})
      for (const bool largest : {false, true}) {
        constexpr std::int64_t groups = 3, rows = 11, before = 2;
        const std::int64_t all = before + rows * rate + 1;
        const Operand x = normals({groups, all, width}, 1);
        Operand y = result({groups, rows, width});
        run(PoolRowsArgs{.x = rows_of(x, before, before + rows * rate), .y = y, .rate = rate, .largest = largest},
            {&y});
        expect_as_exact_as_plain("pooled", y, [&](auto zero) {
          using T = decltype(zero);
          std::vector<T> out;
          for (std::int64_t g = 0; g < groups; ++g)
            for (std::int64_t r = 0; r < rows; ++r)
              for (std::int64_t c = 0; c < width; ++c) {
                T sum = 0, most = static_cast<T>(x.at((g * all + before + r * rate) * width + c));
                for (std::int64_t k = 0; k < rate; ++k) {
                  const T value = static_cast<T>(x.at((g * all + before + r * rate + k) * width + c));
                  sum += value;
                  most = std::max(most, value);
                }
                out.push_back(largest ? most : sum / static_cast<T>(rate));
              }
          return out;
        });
      }
}

// The usage of few whole numbers, so that sums are exact and many are equal.
TEST_P(CompressionTest, KeepsTheMostUsedRowsInOrderAndTheEarlierOfEqualOnes) {
  constexpr std::int64_t groups = 3, heads = 2, elements = 3;
  for (const std::int64_t rows : {1, 12, 333})
    for (const std::int64_t kept : {rows, (rows + 2) / 3})
      for (const std::uint32_t values : {1U, 3U, 1000U}) {
        std::vector<double> usage(static_cast<std::size_t>(groups * rows * heads * elements), -1);
        std::vector<double> expected;
        const Operand x = normals({groups, rows + 1, 5}, 1);
        for (std::int64_t g = 0; g < groups; ++g) {
          std::vector<double> sums;
          for (std::int64_t r = 0; r < rows; ++r) {
            sums.push_back(0);
            for (std::int64_t h = 0; h < heads; ++h) {
              const std::int64_t i = ((g * rows + r) * heads + h) * elements;
              const std::uint32_t drawn = kernels::philox(3, static_cast<std::uint64_t>(i), values, 0).word[0] % values;
              usage[static_cast<std::size_t>(i)] = drawn % 256;  // a whole number in every type
              sums.back() += drawn % 256;
            }
          }
          for (std::int64_t r = 0; r < rows; ++r) {
            std::int64_t ahead = 0;
            for (std::int64_t other = 0; other < rows; ++other) {
              const double a = sums[static_cast<std::size_t>(other)], b = sums[static_cast<std::size_t>(r)];
              ahead += a > b || (a == b && other < r) ? 1 : 0;
            }
            for (std::int64_t c = 0; c < 5 && ahead < kept; ++c)
              expected.push_back(x.at((g * (rows + 1) + r + 1) * 5 + c));
          }
        }
        const Operand of_heads = with_values({groups, rows, heads, elements}, compute(), usage);
        const Tensor first(of_heads->data(), compute(), {groups, rows, heads},
                           {of_heads->stride(0), of_heads->stride(1), elements});
        Operand y = result({groups, kept, 5});
        run(MostUsedRowsArgs{.usage = first, .x = rows_of(x, 1, rows + 1), .y = y}, {&y});
        EXPECT_EQ(y.found(), expected) << rows << " " << kept << " " << values;
      }
}

TEST_P(CompressionTest, SoftmaxAndItsGradient) {
  for (const std::int64_t columns : {1, 5, 256, 300})
    for (const double scale : {1.0, 0.125}) {
      constexpr std::int64_t rows = 37;
      const Operand x = normals({rows, columns}, exact(), 1, 4), dy = normals({rows, columns}, exact(), 2);
      Operand y = result({rows, columns}), dx = result({rows, columns});
      run(SoftmaxArgs{.x = x, .y = y, .scale = scale}, {&y});
      expect_as_exact_as_plain("y", y, [&](auto zero) {
        using T = decltype(zero);
        std::vector<T> out;
        for (std::int64_t r = 0; r < rows; ++r) {
          T largest = -1e30F, sum = 0;
          const auto score = [&](std::int64_t j) {
            return static_cast<T>(scale) * static_cast<T>(x.at(r * columns + j));
          };
          for (std::int64_t j = 0; j < columns; ++j) largest = std::max(largest, score(j));
          for (std::int64_t j = 0; j < columns; ++j) sum += std::exp(score(j) - largest);
          for (std::int64_t j = 0; j < columns; ++j) out.push_back(std::exp(score(j) - largest) / sum);
        }
        return out;
      });
      const Operand stored = with_values({rows, columns}, compute(), y.found());
      run(SoftmaxBackwardArgs{.y = stored, .dy = dy, .dx = dx, .scale = scale}, {&dx});
      expect_as_exact_as_plain("dx", dx, [&](auto zero) {
        using T = decltype(zero);
        std::vector<T> out;
        for (std::int64_t r = 0; r < rows; ++r) {
          T along = 0;
          for (std::int64_t j = r * columns; j < (r + 1) * columns; ++j)
            along += static_cast<T>(stored.at(j)) * static_cast<T>(dy.at(j));
          for (std::int64_t j = r * columns; j < (r + 1) * columns; ++j)
            out.push_back(static_cast<T>(scale) * static_cast<T>(stored.at(j)) * (static_cast<T>(dy.at(j)) - along));
        }
        return out;
      });
    }
}

TEST_P(CompressionTest, SquaredErrorsOfVisibleGroupsAndTheirGradient) {
  constexpr std::int64_t groups = 3, rows = 5, width = 130, last = 4;
  const std::vector<double> first_key = {4, 5, 0};  // the second group is hidden
  const Operand x = normals({groups, rows, width}, exact(), 1), target = normals({groups, rows, width}, exact(), 2);
  const Operand first = with_values({groups}, Dtype::i32, first_key), loss_scale = filled({1}, Dtype::f32, 8);
  for (const bool scaled : {false, true}) {
    Operand losses = result({groups, rows}, exact()), dx = result({groups, rows, width});
    run(SquaredErrorArgs{.x = x,
                         .target = target,
                         .losses = losses,
                         .dx = dx,
                         .scale = 0.25,
                         .loss_scale = scaled ? loss_scale->as<const float>() : nullptr,
                         .first_key = first,
                         .last = last},
        {&losses, &dx});
    const auto off = [&](std::int64_t i, auto zero) {
      using T = decltype(zero);
      return i / (rows * width) == 1 ? zero : static_cast<T>(x.at(i)) - static_cast<T>(target.at(i));
    };
    expect_as_exact_as_plain("losses", losses, [&](auto zero) {
      std::vector<decltype(zero)> sums(groups * rows);
      for (std::int64_t i = 0; i < groups * rows * width; ++i)
        sums[static_cast<std::size_t>(i / width)] += off(i, zero) * off(i, zero) / 4;
      return sums;
    });
    expect_as_exact_as_plain("dx", dx, [&](auto zero) {
      std::vector<decltype(zero)> out;
      for (std::int64_t i = 0; i < groups * rows * width; ++i) out.push_back(off(i, zero) * (scaled ? 4 : 0.5F));
      return out;
    });
  }
}

TEST_P(CompressionTest, RefusesOtherShapes) {
  const Operand x = normals({2, 6, 4}, 1), y = result({2, 3, 4}), usage = normals({2, 5, 4}, 1);
  EXPECT_THROW(ops::run(ctx, PoolRowsArgs{.x = x, .y = y, .rate = 4}), InternalError);
  EXPECT_THROW(ops::run(ctx, PoolRowsArgs{.x = x, .y = y, .rate = 3}), InternalError);
  EXPECT_THROW(ops::run(ctx, MostUsedRowsArgs{.usage = usage, .x = x, .y = y}), InternalError);
  EXPECT_THROW(ops::run(ctx, SoftmaxArgs{.x = x, .y = y}), InternalError);
  EXPECT_THROW(ops::run(ctx, SquaredErrorArgs{.x = y, .target = x, .losses = x, .dx = y}), InternalError);
}

}  // namespace
}  // namespace longstride::testing
