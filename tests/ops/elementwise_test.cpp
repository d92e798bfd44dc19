// The small ops: fill, copy, add, sum, divide, clamp, column_sum, copy_rows, clear_rows.
#include "kernels/elementwise/elementwise.h"

#include <limits>

#include "kernels/clear_rows/clear_rows.h"
#include "kernels/column_sum/column_sum.h"
#include "kernels/copy_rows/copy_rows.h"
#include "tests/ops/op_test.h"

namespace longstride::testing {
namespace {

using kernels::AddArgs;
using kernels::ClampArgs;
using kernels::ClearRowsArgs;
using kernels::ColumnSumArgs;
using kernels::CopyArgs;
using kernels::CopyRowsArgs;
using kernels::DivideArgs;
using kernels::FillArgs;
using kernels::FillZeroArgs;
using kernels::SumArgs;

class ElementwiseTest : public OpTest {
 protected:
  // Without the first `skipped` elements, because unaligned tensors must also work.
  static Tensor after(const Operand& x, std::int64_t skipped) { return x->slice(0, skipped, x->count()); }
};
LONGSTRIDE_OP_TESTS(ElementwiseTest);

constexpr std::int64_t counts[] = {1, 7, 513, 1024, 100003};

TEST_P(ElementwiseTest, FillsCopiesAndConverts) {
  for (const std::int64_t count : counts)
    for (const Dtype to : {compute(), exact()})
      for (const std::int64_t skipped : {0, 1}) {
        Operand x = normals({count + 1}, 1), y = result({count + 1}, to), back = result({count + 1});
        run(CopyArgs{after(x, skipped), after(y, skipped)}, {&y});
        run(CopyArgs{after(y, skipped), after(back, skipped)}, {&back});
        for (const Operand* copy : {&y, &back}) {
          const std::vector<double> found = copy->found();
          for (std::size_t i = static_cast<std::size_t>(skipped); i < found.size(); ++i)
            ASSERT_EQ(found[i], x.values()[i]) << i;
        }
        ops::run(ctx, FillZeroArgs{y});
        for (const double z : y.found()) ASSERT_EQ(z, 0);
        ops::run(ctx, FillArgs{after(y, skipped), 0.75});
        const std::vector<double> filled_up = y.found();
        for (std::int64_t i = 0; i <= count; ++i)
          ASSERT_EQ(filled_up[static_cast<std::size_t>(i)], i < skipped ? 0 : 0.75);
      }
}

TEST_P(ElementwiseTest, RoundsToTheNearest) {
  if (device() == Device::cpu) return;  // copies within one type only
  Operand x = normals({100003}, Dtype::f32, 1), y = result({100003});
  run(CopyArgs{x, y}, {&y});
  const std::vector<double> found = y.found();
  for (std::size_t i = 0; i < found.size(); ++i) ASSERT_EQ(found[i], rounded(x.values()[i], compute())) << i;
}

TEST_P(ElementwiseTest, AddsWithOneRounding) {
  for (const std::int64_t count : counts)
    for (const Dtype type : {compute(), exact()})
      for (const std::int64_t skipped : {0, 1}) {
        Operand x = normals({count + 1}, 1), to = normals({count + 1}, type, 2, 3);
        run(AddArgs{after(x, skipped), after(to, skipped)}, {&to});
        const std::vector<double> found = to.found();
        for (std::int64_t i = skipped; i <= count; ++i)
          ASSERT_EQ(found[static_cast<std::size_t>(i)], rounded(x.at(i) + to.at(i), type)) << i;
      }
}

TEST_P(ElementwiseTest, SumsInDouble) {
  for (const std::int64_t count : counts)
    for (const std::int64_t skipped : {0, 1})
      for (const bool squares : {false, true}) {
        Operand x = normals({count + 1}, 1), total = filled({1}, Dtype::f64, 7);
        run(SumArgs{.x = after(x, skipped), .total = total, .squares = squares}, {&total});
        long double sum = 7, magnitude = 7;
        for (std::int64_t i = skipped; i <= count; ++i) {
          const long double term = squares ? static_cast<long double>(x.at(i)) * x.at(i) : x.at(i);
          sum += term;
          magnitude += std::abs(term);
        }
        // In any order of adding doubles, each addition rounds by at most epsilon / 2 of the magnitude, and so do all
        // squares together.
        const long double rounding = static_cast<long double>(count + 1) * std::numeric_limits<double>::epsilon() / 2;
        EXPECT_NEAR(total.found()[0], static_cast<double>(sum), static_cast<double>(rounding * magnitude)) << count;
      }
}

// Five million small losses: in fp32 a running sum would lose them.
TEST_P(ElementwiseTest, SumsOfMillionsLoseNothing) {
  constexpr std::int64_t count = 5000003;
  const Operand x = filled({count}, exact(), double{0.1f}), total = filled({1}, Dtype::f64, 7);
  ops::run(ctx, SumArgs{.x = x, .total = total});
  EXPECT_NEAR(total.found()[0], 7 + static_cast<double>(count) * double{0.1f}, 1e-6);
}

TEST_P(ElementwiseTest, DividesByATotalAndByNothing) {
  for (const std::int64_t count : counts)
    for (const double total : {3.0, 7e9, 0.0}) {
      Operand x = normals({count}, Dtype::f32, 1);
      run(DivideArgs{x, filled({1}, Dtype::f64, total)}, {&x});
      const std::vector<double> found = x.found();
      for (std::size_t i = 0; i < found.size(); ++i)
        ASSERT_EQ(found[i], total == 0 ? 0 : rounded(x.values()[i] / total, Dtype::f32)) << i;
    }
}

// And what lies between the limits, or is not a number, keeps its bits.
TEST_P(ElementwiseTest, ClampsToItsLimitsAndRoundsACopy) {
  for (const std::int64_t count : counts) {
    Operand x = normals({count + 1}, exact(), 1), rounded_x = result({count + 1});
    const bool copies = device() == Device::cuda;
    run(ClampArgs{.x = after(x, 1), .rounded = copies ? after(rounded_x, 1) : Tensor{}, .low = -0.5, .high = 0.75},
        {&x, &rounded_x});
    const std::vector<double> found = x.found(), copy = rounded_x.found();
    EXPECT_EQ(found[0], x.at(0));
    for (std::int64_t i = 1; i <= count; ++i) {
      const double right = std::clamp(x.at(i), -0.5, 0.75);
      ASSERT_EQ(found[static_cast<std::size_t>(i)], right) << i;
      const double copied = copy[static_cast<std::size_t>(i)];
      ASSERT_TRUE(copies ? copied == rounded(right, compute()) : std::isnan(copied)) << i;
    }
  }
  Operand unknown = with_values({3}, exact(), {2, std::nan(""), -2});
  run(ClampArgs{.x = unknown}, {&unknown});
  EXPECT_EQ(unknown.found()[0], 1);
  EXPECT_TRUE(std::isnan(unknown.found()[1]));
  EXPECT_EQ(unknown.found()[2], 0);
}

TEST_P(ElementwiseTest, ClearsTheRowsThatAreMarked) {
  for (const std::int64_t width : {1, 7, 16, 1000})
    for (const std::int64_t rows : {1, 3, 70}) {
      std::vector<double> marks;
      for (std::int64_t r = 0; r < rows; ++r) marks.push_back(r % 3 == 0 ? 1 : 0);
      Operand x = normals({rows, width}, 1);
      run(ClearRowsArgs{x, with_values({rows}, Dtype::u8, marks)}, {&x});
      const std::vector<double> found = x.found();
      for (std::int64_t i = 0; i < rows * width; ++i)
        ASSERT_EQ(found[static_cast<std::size_t>(i)], i / width % 3 == 0 ? 0 : x.at(i)) << i;
    }
}

TEST_P(ElementwiseTest, SumsColumnsOfStridedRows) {
  for (const std::int64_t rows : {1, 33, 1000, 40000, 65000})
    for (const std::int64_t columns : {1, 5, 8, 64, 130, 512, 1536})
      for (const std::int64_t padding : {0, 3, 8}) {
        if (rows * columns > 1 << 19) continue;
        Operand x = normals({rows, columns + padding}, 1), total = normals({columns}, exact(), 2);
        run(ColumnSumArgs{.x = x->slice(1, 0, columns), .total = total}, {&total});
        expect_as_exact_as_plain(std::to_string(rows) + " x " + std::to_string(columns), total, [&](auto zero) {
          using T = decltype(zero);
          std::vector<T> sums(total.values().begin(), total.values().end());
          for (std::int64_t r = 0; r < rows; ++r)
            for (std::int64_t j = 0; j < columns; ++j)
              sums[static_cast<std::size_t>(j)] += static_cast<T>(x.at(r * (columns + padding) + j));
          return sums;
        });
      }
}

// Columns of every width class: whole vectors, and remainders.
TEST_P(ElementwiseTest, CopiesRowsThatAreApart) {
  for (const std::int64_t width : {1, 3, 16, 64, 200})
    for (const auto& [groups, rows] : {std::pair{1, 1}, std::pair{2, 70}, std::pair{4, 1000}}) {
      Operand joined = normals({rows, groups * width}, 3), split = result({groups, rows, width});
      Operand again = result({rows, groups * width});
      const auto grouped = [&](const Tensor& t) {
        return Tensor(t.data(), t.dtype(), split->shape(), {width, groups * width, 1});
      };
      run(CopyRowsArgs{grouped(joined), split}, {&split});
      const std::vector<double> found = split.found();
      for (std::int64_t i = 0; i < split->count(); ++i) {
        const std::int64_t group = i / width / rows, row = i / width % rows;
        ASSERT_EQ(found[static_cast<std::size_t>(i)], joined.at((row * groups + group) * width + i % width)) << i;
      }
      run(CopyRowsArgs{split, grouped(again)}, {&again});
      EXPECT_EQ(again.raw(), joined.raw());
    }
}

TEST_P(ElementwiseTest, RefusesOtherShapesAndTypes) {
  const Operand a = normals({4}, 1), b = normals({5}, 1), other = filled({4}, Dtype::u8, 1),
                square = normals({4, 4}, 1);
  EXPECT_THROW(ops::run(ctx, CopyArgs{a, b}), InternalError);
  EXPECT_THROW(ops::run(ctx, CopyArgs{a, other}), InternalError);
  EXPECT_THROW(ops::run(ctx, SumArgs{a, normals({1}, Dtype::f32, 1)}), InternalError);
  EXPECT_THROW(ops::run(ctx, FillZeroArgs{square->slice(1, 0, 2)}), InternalError);
  EXPECT_THROW(ops::run(ctx, CopyRowsArgs{square, square}), InternalError);
  EXPECT_THROW(ops::run(ctx, CopyRowsArgs{normals({1, 2, 3}, 1), filled({1, 2, 3}, Dtype::i32, 1)}), InternalError);
  EXPECT_THROW(ops::run(ctx, ColumnSumArgs{square, b}), InternalError);
  EXPECT_THROW(ops::run(ctx, ClearRowsArgs{square, filled({3}, Dtype::u8, 1)}), InternalError);
  EXPECT_THROW(ops::run(ctx, ClampArgs{.x = a, .low = 1, .high = 0}), InternalError);
  EXPECT_THROW(ops::run(ctx, DivideArgs{other, filled({1}, Dtype::f64, 1)}), InternalError);
}

TEST_P(ElementwiseTest, ARemainderIsThatOfWholeNumbers) {
  const Operand numbers = filled({2}, Dtype::i64, 0);
  const Tensor x = numbers->slice(0, 0, 1), y = numbers->slice(0, 1, 2);
  const Queue queue = ctx.queue();
  for (const std::int64_t number : {std::int64_t{0}, std::int64_t{12}, std::int64_t{13}, std::int64_t{1} << 53}) {
    std::int64_t found = -1;
    queue.copy_to_device(x.data(), &number, sizeof number);
    ops::run(ctx, kernels::RemainderArgs{.x = x, .y = y, .divisor = 13});
    queue.copy_to_host(&found, y.data(), sizeof found);
    queue.synchronize();
    EXPECT_EQ(found, number % 13);
  }
  EXPECT_THROW(ops::run(ctx, kernels::RemainderArgs{.x = x, .y = y, .divisor = 0}), InternalError);
}

}  // namespace
}  // namespace longstride::testing
