// Linear layers whose products multiply 8-bit operands (Context::fp8_products). Finite differences of such a product
// tell nothing, because it is constant almost everywhere. Instead the products are compared with plain loops over the
// rounded operands, and where rounding changes nothing with the products of the compute type, whose gradients equal
// finite differences.
#include "framework/ops/linear.h"
#include "kernels/activation/activation.h"
#include "kernels/gemm/gemm.h"
#include "tests/ops/op_test.h"
#include "tests/support/fp8_reference.h"

namespace longstride::testing::fp8 {
namespace {

struct Case {
  std::int64_t rows, in, out;
};
const Case cases[] = {{1, 16, 16}, {37, 48, 80}, {130, 528, 64}, {257, 64, 208}, {64, 512, 1536}};

std::string text(const Case& c) {
  return std::to_string(c.rows) + " x " + std::to_string(c.in) + " to " + std::to_string(c.out);
}

class Fp8LinearTest : public OpTest {
 protected:
  void SetUp() override {
    OpTest::SetUp();
    if (IsSkipped()) return;
    if (device() == Device::cuda) {
      const DeviceInfo gpu = device_info();
      if (compute() != Dtype::bf16) GTEST_SKIP() << "a GPU's products of 8 bits are bf16";
      if (10 * gpu.major + gpu.minor < 89) GTEST_SKIP() << gpu.name << " has no fp8";
    }
    ctx.fp8_products = true;
  }

  // A matrix (rows, width) by rows, each rounded to the format.
  static std::vector<double> rounded_rows(const std::vector<double>& values, std::int64_t width, Dtype dtype) {
    const Fp8Reference reference(dtype);
    std::vector<double> out;
    for (auto row = values.begin(); row != values.end(); row += width) {
      const std::vector<double> r = reference.rounded({row, row + width});
      out.insert(out.end(), r.begin(), r.end());
    }
    return out;
  }
  static std::vector<double> turned(const std::vector<double>& m, std::int64_t rows) {
    const auto columns = static_cast<std::int64_t>(m.size()) / rows;
    std::vector<double> out;
    for (std::int64_t j = 0; j < columns; ++j)
      for (std::int64_t r = 0; r < rows; ++r) out.push_back(m[static_cast<std::size_t>(r * columns + j)]);
    return out;
  }
  // a (rows, depth) b^T, b (columns, depth).
  template <class T>
  static std::vector<T> product(const std::vector<double>& a, const std::vector<double>& b, std::int64_t depth) {
    std::vector<T> out;
    for (auto x = a.begin(); x != a.end(); x += depth)
      for (auto y = b.begin(); y != b.end(); y += depth) {
        T sum = 0;
        for (std::int64_t k = 0; k < depth; ++k) sum += static_cast<T>(x[k]) * static_cast<T>(y[k]);
        out.push_back(sum);
      }
    return out;
  }
  // Products of integers whose sums are exact in every type, so that results of any order have the same bits.
  Operand integers(const Shape& shape, std::uint32_t stream, int largest) {
    std::vector<double> values = normals(shape, Dtype::f32, stream, largest / 2.0).values();
    for (double& v : values) v = std::clamp(std::nearbyint(v), -1.0 * largest, 1.0 * largest);
    return with_values(shape, compute(), values);
  }
  template <class T>
  static T gelu(T z) {
    return z / (T(1) + std::exp(T(-1.702) * z));
  }
  template <class T>
  static T gelu_slope(T z) {
    const T s = T(1) / (T(1) + std::exp(T(-1.702) * z));
    return s + T(1.702) * z * s * (T(1) - s);
  }
};
LONGSTRIDE_OP_TESTS(Fp8LinearTest);

TEST_P(Fp8LinearTest, OutputsAreAsExactAsAPlainLoopOverRoundedOperands) {
  for (const Case& c : cases) {
    const Operand x = normals({c.rows, c.in}, compute(), 1, 3), w = normals({c.out, c.in}, compute(), 2, 0.1),
                  b = normals({c.out}, 3), more = normals({c.rows, c.out}, 4);
    const std::vector<double> a = rounded_rows(x.values(), c.in, Dtype::e4m3),
                              weights = rounded_rows(w.values(), c.in, Dtype::e4m3);
    const auto plain = [&](auto zero, bool biased, bool adds) {
      using T = decltype(zero);
      std::vector<T> out = product<T>(a, weights, c.in);
      for (std::size_t i = 0; i < out.size(); ++i) {
        if (adds) out[i] += static_cast<T>(more.values()[i]);
        if (biased) out[i] += static_cast<T>(b.values()[i % b.values().size()]);
      }
      return out;
    };
    for (const bool biased : {false, true})
      for (const bool adds : {false, true}) {
        const Operand y = result({c.rows, c.out});
        ops::linear(ctx, x, w, biased ? Tensor(b) : Tensor(), y, adds ? Tensor(more) : Tensor());
        expect_as_exact_as_plain(text(c) + (biased ? ", bias" : "") + (adds ? ", residual" : ""), y,
                                 [&](auto zero) { return plain(zero, biased, adds); });
      }
    const Operand pre = result({c.rows, c.out}), active = result({c.rows, c.out}), relu = result({c.rows, c.out});
    ops::linear_gelu(ctx, x, w, b, pre, active);
    ops::linear_relu(ctx, x, w, b, relu);
    expect_as_exact_as_plain(text(c) + ", before gelu", pre, [&](auto zero) { return plain(zero, true, false); });
    expect_as_exact_as_plain(text(c) + ", gelu", active, [&](auto zero) {
      auto out = plain(zero, true, false);
      for (auto& v : out) v = gelu(v);
      return out;
    });
    expect_as_exact_as_plain(text(c) + ", relu", relu, [&](auto zero) {
      auto out = plain(zero, true, false);
      for (auto& v : out) v = std::max(v, zero);
      return out;
    });
  }
}

TEST_P(Fp8LinearTest, InputGradientsAreAsExactAsAPlainLoopOverRoundedOperands) {
  for (const Case& c : cases) {
    const Operand dy = normals({c.rows, c.out}, compute(), 1, 1e-3), w = normals({c.out, c.in}, compute(), 2, 0.1),
                  pre = normals({c.rows, c.in}, 3);
    const std::vector<double> a = rounded_rows(dy.values(), c.out, Dtype::e5m2),
                              weights = rounded_rows(turned(w.values(), c.out), c.out, Dtype::e4m3);
    const Operand dx = result({c.rows, c.in}), dpre = result({c.rows, c.in}), drelu = result({c.rows, c.in});
    Operand sums = normals({c.in}, exact(), 4);
    ops::linear_backward_input(ctx, dy, w, dx);
    ops::linear_backward_input_gelu(ctx, dy, w, pre, dpre, sums);
    ops::linear_backward_input_relu(ctx, dy, w, pre, drelu);
    const auto plain = [&](auto zero, auto&& slope) {
      using T = decltype(zero);
      std::vector<T> out = product<T>(a, weights, c.out);
      for (std::size_t i = 0; i < out.size(); ++i) out[i] *= slope(static_cast<T>(pre.values()[i]));
      return out;
    };
    expect_as_exact_as_plain(text(c) + ", dx", dx,
                             [&](auto zero) { return plain(zero, [](auto) { return decltype(zero){1}; }); });
    expect_as_exact_as_plain(text(c) + ", through gelu", dpre,
                             [&](auto zero) { return plain(zero, [](auto z) { return gelu_slope(z); }); });
    expect_as_exact_as_plain(text(c) + ", through relu", drelu, [&](auto zero) {
      return plain(zero, [](auto z) { return z > 0 ? decltype(z){1} : decltype(z){0}; });
    });
    const std::vector<double> stored = dpre.found();
    expect_as_exact_as_plain(text(c) + ", sums", sums, [&](auto zero) {
      std::vector<decltype(zero)> out(sums.values().begin(), sums.values().end());
      for (std::size_t i = 0; i < stored.size(); ++i) out[i % out.size()] += static_cast<decltype(zero)>(stored[i]);
      return out;
    });
  }
}

// The error of a term x w whose factors are rounded is at most |x| dw + |w| dx + dx dw, with dx at most half a step of
// x or, for the smallest, of the format.
TEST_P(Fp8LinearTest, TheErrorIsWithinTheFormatsRounding) {
  const Case c = {70, 256, 48};
  const Operand x = normals({c.rows, c.in}, compute(), 1, 3), w = normals({c.out, c.in}, compute(), 2, 0.1),
                y = result({c.rows, c.out});
  ops::linear(ctx, x, w, {}, y);
  const Fp8Reference format(Dtype::e4m3);
  const auto errors = [&](const std::vector<double>& values) {
    std::vector<double> out;
    for (auto row = values.begin(); row != values.end(); row += c.in) {
      const double scale = format.scale({row, row + c.in});
      for (std::int64_t k = 0; k < c.in; ++k)
        out.push_back(std::max(std::abs(row[k]) * format.half_step(), scale * format.smallest() / 2));
    }
    return out;
  };
  EXPECT_EQ(format.half_step(), 0x1p-4);
  const std::vector<double> dx = errors(x.values()), dw = errors(w.values()), found = y.found();
  double most = 0;
  for (std::int64_t r = 0; r < c.rows; ++r)
    for (std::int64_t j = 0; j < c.out; ++j) {
      double exact = 0, bound = 0;
      for (std::int64_t k = 0; k < c.in; ++k) {
        const auto a = static_cast<std::size_t>(r * c.in + k), b = static_cast<std::size_t>(j * c.in + k);
        exact += x.values()[a] * w.values()[b];
        bound += std::abs(x.values()[a]) * dw[b] + std::abs(w.values()[b]) * dx[a] + dx[a] * dw[b];
      }
      const double error = std::abs(found[static_cast<std::size_t>(r * c.out + j)] - exact);
      ASSERT_LE(error, bound + 2 * half_step_of(compute()) * std::abs(exact));
      most = std::max(most, error);
    }
  EXPECT_GT(most, 1e-3);  // the products did round
}

TEST_P(Fp8LinearTest, WhereRoundingChangesNothingResultsHaveTheBitsOfTheComputeType) {
  const Case c = {75, 64, 96};
  const Operand x = integers({c.rows, c.in}, 1, 4), w = integers({c.out, c.in}, 2, 2), b = integers({c.out}, 3, 4),
                dy = integers({c.rows, c.out}, 4, 2), more = integers({c.rows, c.out}, 5, 4);
  const auto results = [&] {
    const Operand y = result({c.rows, c.out}), dx = result({c.rows, c.in}), dw = filled({c.out, c.in}, exact(), 0),
                  db = filled({c.out}, exact(), 0);
    ops::linear(ctx, x, w, b, y, more);
    ops::linear_backward_input(ctx, dy, w, dx);
    ops::linear_backward_weight(ctx, dy, x, dw, db);
    return std::vector<std::vector<std::byte>>{y.raw(), dx.raw(), dw.raw(), db.raw()};
  };
  const auto in_fp8 = results();
  ctx.fp8_products = false;
  EXPECT_EQ(in_fp8, results());
}

TEST_P(Fp8LinearTest, SizesThatAreNotMultiplesOf16MultiplyInTheComputeType) {
  for (const Case& c : {Case{20, 40, 64}, Case{20, 64, 40}, Case{3, 7, 5}}) {
    EXPECT_FALSE(ops::fits_fp8(c.in, c.out));
    const Operand x = normals({c.rows, c.in}, 1), w = normals({c.out, c.in}, 2), b = normals({c.out}, 3),
                  dy = normals({c.rows, c.out}, 4);
    const auto results = [&] {
      const Operand y = result({c.rows, c.out}), dx = result({c.rows, c.in});
      ops::linear(ctx, x, w, b, y);
      ops::linear_backward_input(ctx, dy, w, dx);
      return std::pair(y.raw(), dx.raw());
    };
    ctx.fp8_products = true;
    const auto in_fp8 = results();
    ctx.fp8_products = false;
    EXPECT_EQ(in_fp8, results());
  }
}

// As queries, keys and values within one tensor are.
TEST_P(Fp8LinearTest, RowsMayBeStrided) {
  const Operand wide = normals({2, 9, 96}, 1), w = normals({32, 64}, 2), b = normals({32}, 3);
  std::vector<double> rows;
  for (std::int64_t r = 0; r < 18; ++r)
    for (std::int64_t j = 0; j < 64; ++j) rows.push_back(wide.at(r * 96 + 16 + j));
  const Operand x = with_values({18, 64}, compute(), rows), y = result({18, 32}),
                out = filled({2, 9, 64}, compute(), 0);
  ops::linear(ctx, wide->slice(2, 16, 80), w, b, out->slice(2, 16, 48));
  ops::linear(ctx, x, w, b, y);
  const std::vector<double> found = out.found(), dense = y.found();
  for (std::int64_t r = 0; r < 18; ++r)
    for (std::int64_t j = 0; j < 64; ++j) {
      const double expected = j >= 16 && j < 48 ? dense[static_cast<std::size_t>(r * 32 + j - 16)] : 0;
      EXPECT_NEAR(found[static_cast<std::size_t>(r * 64 + j)], expected,
                  device() == Device::cpu ? 0 : 16 * half_step_of(compute()) * (1 + std::abs(expected)));
    }
}

TEST_P(Fp8LinearTest, TakesThePlannedMemoryAndReturnsIt) {
  const Operand x = normals({77, 64}, 1), w = normals({48, 64}, 2), dy = normals({77, 48}, 3), y = result({77, 48}),
                dx = result({77, 64});
  const auto both = [&](Context& context) {
    ops::linear(context, x, w, {}, y);
    ops::linear_backward_input(context, dy, w, dx);
  };
  Arena counting;
  Context planned = ctx;
  planned.arena = &counting;
  both(planned);
  both(ctx);
  EXPECT_EQ(ctx.arena->high_water(), counting.high_water());
  EXPECT_GE(counting.high_water(), std::size_t{77 * 64 + 48 * 64 + 4 * (77 + 48)});
  EXPECT_EQ(ctx.arena->scratch_used(), 0u);
}

TEST_P(Fp8LinearTest, WhatIsNotANumberReachesTheResult) {
  std::vector<double> values = normals({20, 32}, 1).values();
  values[5 * 32 + 7] = std::numeric_limits<double>::infinity();
  const Operand x = with_values({20, 32}, compute(), values), w = normals({16, 32}, 2), y = result({20, 16});
  ops::linear(ctx, x, w, {}, y);
  const std::vector<double> found = y.found();
  for (std::size_t i = 0; i < found.size(); ++i) EXPECT_EQ(std::isnan(found[i]), i / 16 == 5) << i;
}

TEST_P(Fp8LinearTest, ProductsWithScalesRefuseWhatDoesNotFit) {
  const auto codes = [&](const Shape& shape, Dtype dtype) { return filled(shape, dtype, 1); };
  const Operand a = codes({32, 16}, Dtype::e4m3), b = codes({48, 16}, Dtype::e4m3),
                steep = codes({32, 16}, Dtype::e5m2), other = codes({48, 16}, Dtype::e5m2),
                a_scales = filled({32}, Dtype::f32, 1), b_scales = filled({48}, Dtype::f32, 1);
  Operand c = result({32, 48});
  kernels::GemmArgs args;
  args.a = a;
  args.b = b->transposed();
  args.c = c;
  EXPECT_THROW(ops::run(ctx, args), InternalError);
  args.a_scales = a_scales;
  EXPECT_THROW(ops::run(ctx, args), InternalError);
  args.b_scales = b_scales;
  run(args, {&c});
  for (const double x : c.found()) EXPECT_EQ(x, 16 * 0x1p-18);  // the smallest number squared
  args.a = steep;
  EXPECT_NO_THROW(ops::run(ctx, args));
  args.b = other->transposed();
  EXPECT_THROW(ops::run(ctx, args), InternalError);
  args.b = b->transposed();
  args.accumulate = true;
  EXPECT_THROW(ops::run(ctx, args), InternalError);
}

}  // namespace
}  // namespace longstride::testing::fp8
