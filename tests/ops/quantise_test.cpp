#include "kernels/quantise/quantise.h"

#include "kernels/quantise/fp8.h"
#include "tests/ops/op_test.h"
#include "tests/support/fp8_reference.h"

namespace longstride::testing::quantise_test {
namespace {

using kernels::QuantiseArgs;

constexpr Dtype formats[] = {Dtype::e4m3, Dtype::e5m2};

class QuantiseTest : public OpTest {
 protected:
  Operand codes(const Shape& shape, Dtype dtype) { return filled(shape, dtype, 0xA5); }

  // x is the reference's input, row after row, however it is stored.
  void expect_reference(const Tensor& x, const std::vector<double>& values, Dtype dtype, const std::string& what) {
    Operand q = codes(x.shape(), dtype), scales = result({x.size(0)}, Dtype::f32);
    run(QuantiseArgs{.x = x, .q = q, .scales = scales}, {&q, &scales});
    const std::vector<double> found = q.found(), found_scales = scales.found();
    const Fp8Reference reference(dtype);
    const auto width = static_cast<std::size_t>(x.size(1));
    std::size_t wrong = 0;
    for (std::size_t r = 0; r < found_scales.size(); ++r) {
      const std::vector<double> row(values.begin() + static_cast<std::ptrdiff_t>(r * width),
                                    values.begin() + static_cast<std::ptrdiff_t>((r + 1) * width));
      const double scale = reference.scale(row);
      ASSERT_EQ(found_scales[r], scale) << what << ", row " << r;
      for (std::size_t j = 0; j < width; ++j)
        if (found[r * width + j] != reference.code(row[j] / scale) && wrong++ == 0)
          ADD_FAILURE() << what << ", row " << r << ": " << row[j] << " / " << scale << " has code "
                        << found[r * width + j] << ", not " << reference.code(row[j] / scale);
    }
    EXPECT_EQ(wrong, 0u) << what;
  }
};
LONGSTRIDE_OP_TESTS(QuantiseTest);

// All bf16 numbers, in rows that begin with the format's largest: those below it are divided by 1, so every code and
// every tie occurs, and the rest are divided by what brings them into the range.
TEST_P(QuantiseTest, EveryBf16NumberHasTheNearestCode) {
  constexpr std::int64_t width = 64;
  for (const Dtype dtype : formats) {
    std::vector<double> values;
    for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
      if (values.size() % width == 0) values.push_back(Fp8Reference(dtype).largest());
      const double x = rounded(value_of(static_cast<std::uint16_t>(bits), Dtype::bf16), compute());
      if (std::isfinite(x)) values.push_back(x);
    }
    while (values.size() % width != 0) values.push_back(0);
    const Shape shape = {static_cast<std::int64_t>(values.size()) / width, width};
    const Operand x = with_values(shape, compute(), values);
    expect_reference(x, values, dtype, kernels::name_of(dtype));
  }
}

// Every way in which a kernel holds a row: rows of all widths, slices of wider ones, and rows that lie across.
TEST_P(QuantiseTest, RowsOfEveryWidthAndStrideHaveTheirOwnScales) {
  const std::pair<std::int64_t, std::int64_t> shapes[] = {{1, 16},   {5, 48},   {3, 53},    {300, 256}, {9, 512},
                                                          {33, 528}, {8, 1024}, {16, 1040}, {7, 2048},  {48, 2064},
                                                          {4, 4096}, {3, 8000}, {2, 16384}, {2, 20000}, {2, 40000}};
  for (const Dtype dtype : formats)
    for (const auto& [rows, width] : shapes) {
      const std::string what =
          std::string(kernels::name_of(dtype)) + ", " + std::to_string(rows) + " x " + std::to_string(width);
      const Operand wide = normals({rows, width + 24}, compute(), 1, 100);
      const auto row_of = [&](std::int64_t from, std::int64_t apart, std::int64_t step) {
        std::vector<double> values;
        for (std::int64_t r = 0; r < rows; ++r)
          for (std::int64_t j = 0; j < width; ++j) values.push_back(wide.at(from + r * apart + j * step));
        return values;
      };
      const Tensor whole = Tensor(wide->data(), compute(), {rows, width});
      expect_reference(whole, row_of(0, width, 1), dtype, what);
      expect_reference(wide->slice(1, 16, 16 + width), row_of(16, width + 24, 1), dtype, what + ", a slice");
      expect_reference(wide->slice(1, 3, 3 + width), row_of(3, width + 24, 1), dtype, what + ", not aligned");
      expect_reference(Tensor(wide->data(), compute(), {width, rows}).transposed(), row_of(0, 1, rows), dtype,
                       what + ", across");
    }
}

// Rows across of a matrix that is a slice of a wider one, as the weight of some of a layer's outputs is.
TEST_P(QuantiseTest, RowsAcrossMayBeASlice) {
  const Operand wide = normals({400, 96}, 1);
  for (const Dtype dtype : formats)
    for (const auto& [begin, end] : {std::pair<std::int64_t, std::int64_t>{16, 80}, {0, 48}, {5, 69}}) {
      std::vector<double> values;
      for (std::int64_t r = begin; r < end; ++r)
        for (std::int64_t j = 0; j < 400; ++j) values.push_back(wide.at(j * 96 + r));
      expect_reference(wide->slice(1, begin, end).transposed(), values, dtype, "from " + std::to_string(begin));
    }
}

TEST_P(QuantiseTest, MultiplyingByAPowerOfTwoChangesOnlyTheScales) {
  const Operand x = normals({40, 96}, 1);
  std::vector<double> larger = x.values();
  for (double& v : larger) v *= 64;
  const Operand y = with_values({40, 96}, compute(), larger);
  for (const Dtype dtype : formats) {
    Operand q = codes({40, 96}, dtype), scales = result({40}, Dtype::f32), same = codes({40, 96}, dtype),
            larger_scales = result({40}, Dtype::f32);
    run(QuantiseArgs{.x = x, .q = q, .scales = scales}, {&q, &scales});
    run(QuantiseArgs{.x = y, .q = same, .scales = larger_scales}, {&same, &larger_scales});
    // f16 loses bits of its smallest numbers, but 64 times these are codes of 0 as well.
    EXPECT_EQ(same.raw(), q.raw());
    const std::vector<double> before = scales.found(), after = larger_scales.found();
    for (std::size_t r = 0; r < before.size(); ++r) EXPECT_EQ(after[r], 64 * before[r]);
  }
}

// The product of such a row is not a number, whatever it is multiplied by; the other rows are unaffected.
TEST_P(QuantiseTest, ARowThatIsNotFiniteHasAScaleThatIsNotANumber) {
  constexpr std::int64_t rows = 16, width = 528;
  constexpr double infinity = std::numeric_limits<double>::infinity();
  const Operand finite = normals({rows, width}, 1);
  for (const Dtype dtype : formats)
    for (const bool across : {false, true})
      for (const double wrong : {infinity, -infinity, std::nan("")}) {
        std::vector<double> values = finite.values();
        const std::int64_t bad = 5, column = 300;
        values[static_cast<std::size_t>(across ? column * rows + bad : bad * width + column)] = wrong;
        const Shape stored = across ? Shape{width, rows} : Shape{rows, width};
        const Operand x = with_values(stored, compute(), values),
                      good = with_values(stored, compute(), finite.values());
        Operand q = codes({rows, width}, dtype), scales = result({rows}, Dtype::f32),
                wanted = codes({rows, width}, dtype), wanted_scales = result({rows}, Dtype::f32);
        const auto turned = [&](const Operand& o) { return across ? o->transposed() : Tensor(o); };
        run(QuantiseArgs{.x = turned(x), .q = q, .scales = scales}, {&q, &scales});
        run(QuantiseArgs{.x = turned(good), .q = wanted, .scales = wanted_scales}, {&wanted, &wanted_scales});
        const std::vector<double> found = q.found(), found_scales = scales.found();
        const std::vector<double> expected = wanted.found(), expected_scales = wanted_scales.found();
        for (std::int64_t r = 0; r < rows; ++r) {
          const auto at = static_cast<std::size_t>(r);
          if (r == bad)
            EXPECT_TRUE(std::isnan(found_scales[at]));
          else
            EXPECT_EQ(found_scales[at], expected_scales[at]);
          for (std::int64_t j = 0; j < width; ++j) {
            const auto i = static_cast<std::size_t>(r * width + j);
            ASSERT_EQ(found[i], r == bad ? 0 : expected[i]) << r << " " << j;
          }
        }
      }
}

TEST_P(QuantiseTest, ZerosHaveTheSmallestScale) {
  const Operand x = filled({3, 32}, compute(), 0);
  for (const Dtype dtype : formats) {
    Operand q = codes({3, 32}, dtype), scales = result({3}, Dtype::f32);
    run(QuantiseArgs{.x = x, .q = q, .scales = scales}, {&q, &scales});
    for (const double code : q.found()) EXPECT_EQ(code, 0);
    for (const double scale : scales.found()) EXPECT_EQ(scale, 0x1p-126);
  }
}

TEST_P(QuantiseTest, RefusesOtherTypesAndShapes) {
  const Operand x = normals({4, 16}, 1), q = codes({4, 16}, Dtype::e4m3), scales = result({4}, Dtype::f32);
  const Operand narrow = codes({4, 8}, Dtype::e4m3), bytes = codes({4, 16}, Dtype::u8), few = result({3}, Dtype::f32);
  EXPECT_THROW(ops::run(ctx, QuantiseArgs{x, narrow, scales}), InternalError);
  EXPECT_THROW(ops::run(ctx, QuantiseArgs{x, bytes, scales}), InternalError);
  EXPECT_THROW(ops::run(ctx, QuantiseArgs{x, q, few}), InternalError);
  EXPECT_THROW(ops::run(ctx, QuantiseArgs{q, q, scales}), InternalError);
  EXPECT_THROW(ops::run(ctx, QuantiseArgs{normals({4, 16, 2}, 1)->slice(2, 0, 1), q, scales}), InternalError);
  EXPECT_NO_THROW(ops::run(ctx, QuantiseArgs{x, q, scales}));
}

// The host's functions of kernels/quantise/fp8.h, for all numbers that a code stands for and for those that have none.
TEST(Fp8, CodesAndValuesAreInverse) {
  for (const Dtype dtype : formats) {
    const Fp8Reference reference(dtype);
    const int largest = kernels::fp8_format(dtype).largest;
    for (int code = 0; code <= largest; ++code)
      for (const int sign : {0, 128}) {
        const auto signed_code = static_cast<std::uint8_t>(code + sign);
        EXPECT_EQ(kernels::fp8_value(signed_code, dtype), reference.value(code + sign));
        EXPECT_EQ(kernels::fp8_code(static_cast<float>(reference.value(code + sign)), dtype), signed_code);
      }
    EXPECT_EQ(kernels::fp8_code(1e30f, dtype), largest);
    EXPECT_EQ(kernels::fp8_code(-std::numeric_limits<float>::infinity(), dtype), largest + 128);
    EXPECT_TRUE(std::isnan(kernels::fp8_value(kernels::fp8_code(std::nanf(""), dtype), dtype)));
  }
  EXPECT_EQ(Fp8Reference(Dtype::e4m3).largest(), 448);
  EXPECT_EQ(Fp8Reference(Dtype::e4m3).smallest(), 0x1p-9);
  EXPECT_EQ(Fp8Reference(Dtype::e5m2).largest(), 57344);
  EXPECT_EQ(Fp8Reference(Dtype::e5m2).smallest(), 0x1p-16);
  EXPECT_TRUE(std::isinf(kernels::fp8_value(0x7C, Dtype::e5m2)));
}

}  // namespace
}  // namespace longstride::testing::quantise_test
