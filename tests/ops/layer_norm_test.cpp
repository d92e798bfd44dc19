#include "kernels/layer_norm/layer_norm.h"

#include "kernels/copy_rows/copy_rows.h"
#include "tests/ops/op_test.h"
#include "tests/support/finite_differences.h"

namespace longstride::testing {
namespace {

using kernels::DropoutAddLayerNormArgs;
using kernels::DropoutArgs;
using kernels::HeldGradient;
using kernels::LayerNormArgs;
using kernels::LayerNormBackwardArgs;
using kernels::LayerNormBackwardDropoutArgs;

constexpr std::int64_t gpu_widths[] = {1,   3,   64,   100,  128,  130,  192,  256, 384,
                                       512, 768, 1000, 1024, 2048, 3000, 4096, 5000};
constexpr std::int64_t cpu_widths[] = {1, 2, 17, 96, 513};

// Many rows if they are short, so that each block sums several.
std::int64_t rows_for(std::int64_t width) { return width > 1000 ? 67 : width == 64 || width == 256 ? 1501 : 131; }

// Everything that one branch of the residual stream needs, forward and backward.
struct Branch {
  std::int64_t rows, width;
  Operand branch, residual, sum, y, gain, bias, mean, rstd;
  Operand dy, dx, dbranch, dgain, dbias, branch_sums;

  LayerNormArgs norm(const Tensor& x) const { return {x, gain, bias, y, mean, rstd}; }
  LayerNormBackwardArgs backward(HeldGradient held = {}) const {
    return {dy, residual, gain, mean, rstd, dx, held, dgain, dbias};
  }
  std::string text() const {
    return std::to_string(rows) + " x " + std::to_string(width) + ", residual " + kernels::name_of(residual->dtype());
  }
};

// mean and 1 / deviation of a row of x, whose elements are value(j).
template <class T, class Value>
std::pair<T, T> statistics(std::int64_t width, Value&& value) {
  T mean = 0, variance = 0;
  for (std::int64_t j = 0; j < width; ++j) mean += value(j);
  mean /= static_cast<T>(width);
  for (std::int64_t j = 0; j < width; ++j) variance += (value(j) - mean) * (value(j) - mean);
  return {mean, 1 / std::sqrt(variance / static_cast<T>(width) + static_cast<T>(1e-5f))};
}

enum class Result { y, mean, rstd };

// From the rows of x as stored.
template <class T>
std::vector<T> plain(const Branch& b, const std::vector<double>& x, Result result) {
  std::vector<T> out;
  for (std::int64_t r = 0; r < b.rows; ++r) {
    const auto value = [&](std::int64_t j) { return static_cast<T>(x[static_cast<std::size_t>(r * b.width + j)]); };
    const auto [mean, rstd] = statistics<T>(b.width, value);
    if (result != Result::y) {
      out.push_back(result == Result::mean ? mean : rstd);
      continue;
    }
    for (std::int64_t j = 0; j < b.width; ++j)
      out.push_back((value(j) - mean) * rstd * static_cast<T>(b.gain.at(j)) + static_cast<T>(b.bias.at(j)));
  }
  return out;
}

template <class T>
struct Gradients {
  std::vector<T> dx, dgain, dbias;
};

// From the statistics passed to the op.
template <class T>
Gradients<T> plain_backward(const Branch& b, HeldGradient held = {}) {
  const T n = static_cast<T>(b.width), joins = held == HeldGradient::of_y;
  Gradients<T> out;
  out.dgain.assign(b.dgain.values().begin(), b.dgain.values().end());
  out.dbias.assign(b.dbias.values().begin(), b.dbias.values().end());
  const std::vector<double> means = b.mean.found(), rstds = b.rstd.found();
  for (std::int64_t r = 0; r < b.rows; ++r) {
    const T mean = static_cast<T>(means[static_cast<std::size_t>(r)]);
    const T rstd = static_cast<T>(rstds[static_cast<std::size_t>(r)]);
    const auto h = [&](std::int64_t j) { return (static_cast<T>(b.residual.at(r * b.width + j)) - mean) * rstd; };
    const auto before = [&](std::int64_t j) { return static_cast<T>(b.dx.at(r * b.width + j)); };
    const auto dy = [&](std::int64_t j) { return static_cast<T>(b.dy.at(r * b.width + j)) + joins * before(j); };
    T sum_g = 0, sum_gh = 0;
    for (std::int64_t j = 0; j < b.width; ++j) {
      const T g = dy(j) * static_cast<T>(b.gain.at(j));
      sum_g += g;
      sum_gh += g * h(j);
      out.dgain[static_cast<std::size_t>(j)] += dy(j) * h(j);
      out.dbias[static_cast<std::size_t>(j)] += dy(j);
    }
    for (std::int64_t j = 0; j < b.width; ++j) {
      const T d = rstd * (dy(j) * static_cast<T>(b.gain.at(j)) - sum_g / n - h(j) * (sum_gh / n));
      out.dx.push_back(held == HeldGradient::of_x ? before(j) + d : d);
    }
  }
  return out;
}

class LayerNormTest : public OpTest {
 protected:
  // The residual stream's types: the exact type, and on a GPU also bf16 if that is the compute type.
  std::vector<Dtype> residual_types() const {
    return compute() == Dtype::bf16 ? std::vector{Dtype::f32, Dtype::bf16} : std::vector{exact()};
  }
  std::vector<std::int64_t> widths() const {
    if (device() == Device::cuda) return {std::begin(gpu_widths), std::end(gpu_widths)};
    return {std::begin(cpu_widths), std::end(cpu_widths)};
  }
  Branch branch(Dtype residual, std::int64_t rows, std::int64_t width) {
    const Shape both{rows, width}, vector{width}, each{rows};
    return {rows,
            width,
            normals(both, 1),
            normals(both, residual, 2, 2, 0.5),
            result(both, residual),
            result(both),
            normals(vector, exact(), 3),
            normals(vector, exact(), 4),
            result(each, exact()),
            result(each, exact()),
            normals(both, 5),
            normals(both, residual, 6),
            result(both),
            normals(vector, exact(), 7),
            normals(vector, exact(), 8),
            normals(vector, exact(), 9)};
  }
  // True if a fused op that starts at element `first` of the mask sums a row in the same order as the plain op. On a
  // GPU one that starts inside a group of four, unlike its rows, reads single elements. No model starts there with such
  // rows.
  bool same_order(std::int64_t first, std::int64_t width) const {
    return device() == Device::cpu || first % 4 == 0 || width % 4 != 0 || width > 4096;
  }
  template <class F>
  void each_branch(F&& f) {
    for (const Dtype residual : residual_types())
      for (const std::int64_t width : widths()) f(branch(residual, rows_for(width), width));
  }
  DropoutArgs dropout(const Tensor& from, const Tensor& to, float p = 0.4f, std::int64_t first = 96) const {
    DropoutArgs args{.branch = from, .y = to, .p = p, .seed = seed, .layer = layer, .first_element = first};
    if (p > 0) args.step = (*step_)->as<std::int64_t>();  // otherwise it is not read
    return args;
  }
  DropoutAddLayerNormArgs add_and_norm(const Branch& b, float p = 0.4f, std::int64_t first = 96) const {
    DropoutAddLayerNormArgs args{b.norm(b.sum), dropout(b.branch, b.sum, p, first)};
    args.dropout.residual = b.residual;
    return args;
  }
  // add + dropout(x), directly from the definition of the mask, with one rounding. The CPU may round twice and then
  // differ by one unit.
  static std::vector<double> dropped(const std::vector<double>& x, const std::vector<double>* add,
                                     const DropoutArgs& args) {
    std::vector<double> out(x.size());
    const double limit = static_cast<double>(args.p) * 4294967296.0;
    const float scale = 1.0f / (1.0f - args.p);
    for (std::size_t i = 0; i < x.size(); ++i) {
      const std::uint64_t e = static_cast<std::uint64_t>(args.first_element) + i;
      const std::uint32_t word = kernels::philox(args.seed, e / 4, static_cast<std::uint32_t>(step),
                                                 kernels::domain_of(kernels::Purpose::dropout, args.layer))
                                     .word[e % 4];
      const double to = add != nullptr ? (*add)[i] : 0;
      const bool drops = args.p > 0 && word < limit;
      if (args.y.dtype() == Dtype::f64)
        out[i] = drops ? to : to + x[i] / (1 - static_cast<double>(args.p));
      else
        out[i] =
            drops ? to : rounded(std::fma(static_cast<float>(x[i]), scale, static_cast<float>(to)), args.y.dtype());
    }
    return out;
  }
  void expect_dropped(const Operand& found, const std::vector<double>& expected, const std::string& where) const {
    const std::vector<double> values = found.found();
    if (device() == Device::cuda) {
      EXPECT_EQ(values, expected) << where;
      return;
    }
    for (std::size_t i = 0; i < values.size(); ++i)
      ASSERT_NEAR(values[i], expected[i], 4e-7 * (1 + std::abs(expected[i]))) << where << ", element " << i;
  }

  static constexpr std::uint64_t seed = 0x123456789ABCDEFull;
  static constexpr std::uint32_t layer = 5;
  static constexpr std::int64_t step = 11;

  void SetUp() override {
    OpTest::SetUp();
    if (!IsSkipped()) step_ = std::make_unique<Operand>(filled({1}, Dtype::i64, static_cast<double>(step)));
  }

 private:
  std::unique_ptr<Operand> step_;
};
LONGSTRIDE_OP_TESTS(LayerNormTest);

TEST_P(LayerNormTest, IsAsExactAsAPlainLoop) {
  each_branch([&](Branch b) {
    run(b.norm(b.residual), {&b.y, &b.mean, &b.rstd});
    const auto expect = [&](const char* name, const Operand& found, Result result) {
      expect_as_exact_as_plain(std::string(name) + ' ' + b.text(), found,
                               [&](auto zero) { return plain<decltype(zero)>(b, b.residual.values(), result); });
    };
    expect("y", b.y, Result::y);
    expect("mean", b.mean, Result::mean);
    expect("rstd", b.rstd, Result::rstd);
  });
}

TEST_P(LayerNormTest, GradientsAreAsExactAsAPlainLoopAndAccumulate) {
  each_branch([&](Branch b) {
    ops::run(ctx, b.norm(b.residual));
    for (const HeldGradient held : {HeldGradient::none, HeldGradient::of_x, HeldGradient::of_y}) {
      run(b.backward(held), {&b.dx, &b.dgain, &b.dbias});
      const auto expect = [&](const char* name, const Operand& found, auto which) {
        expect_as_exact_as_plain(std::string(name) + ' ' + b.text(), found,
                                 [&](auto zero) { return which(plain_backward<decltype(zero)>(b, held)); });
      };
      if (b.width > 1) expect("dx", b.dx, [](auto g) { return g.dx; });
      expect("dgain", b.dgain, [](auto g) { return g.dgain; });
      expect("dbias", b.dbias, [](auto g) { return g.dbias; });
    }
  });
}

// Dropped elements follow from the definition of the mask, wherever a micro-batch starts and also beyond 2^32 elements.
// Recompute may run fused kernels where the first pass ran plain ones, so the bits must be equal.
TEST_P(LayerNormTest, FusedKernelsGiveTheSameBitsAsPlainOnes) {
  each_branch([&](Branch b) {
    for (const auto& [first, p] :
         {std::pair{std::int64_t{0}, 0.0f}, {4096, 0.4f}, {5, 0.01f}, {(std::int64_t{1} << 34) + 3, 0.9f}}) {
      const DropoutAddLayerNormArgs forward = add_and_norm(b, p, first);
      const bool same_bits = same_order(first, b.width);
      run(forward, {&b.sum, &b.y, &b.mean, &b.rstd});
      expect_dropped(b.sum, dropped(b.branch.values(), &b.residual.values(), forward.dropout), "sum " + b.text());
      if (same_bits) {
        const auto y = b.y.raw(), mean = b.mean.raw(), rstd = b.rstd.raw();
        ops::run(ctx, b.norm(b.sum));
        EXPECT_EQ(b.y.raw(), y) << b.text();
        EXPECT_EQ(b.mean.raw(), mean) << b.text();
        EXPECT_EQ(b.rstd.raw(), rstd) << b.text();
      } else {
        const std::vector<double> sum = b.sum.found();
        expect_as_exact_as_plain("fused y " + b.text(), b.y,
                                 [&](auto zero) { return plain<decltype(zero)>(b, sum, Result::y); });
      }
      const HeldGradient held = p < 0.1f ? HeldGradient::of_y : HeldGradient::of_x;
      ops::run(ctx, b.norm(b.residual));
      run(b.backward(held), {&b.dx, &b.dgain, &b.dbias});
      const auto dx = b.dx.raw(), dgain = b.dgain.raw(), dbias = b.dbias.raw();
      const LayerNormBackwardDropoutArgs back{b.backward(held), dropout(b.dx, b.dbranch, p, first), b.branch_sums};
      run(back, {&b.dx, &b.dgain, &b.dbias, &b.dbranch, &b.branch_sums});
      if (same_bits) {
        EXPECT_EQ(b.dx.raw(), dx) << b.text();
        EXPECT_EQ(b.dgain.raw(), dgain) << b.text();
        EXPECT_EQ(b.dbias.raw(), dbias) << b.text();
      } else if (b.width > 1) {
        expect_as_exact_as_plain("fused dx " + b.text(), b.dx,
                                 [&](auto zero) { return plain_backward<decltype(zero)>(b, held).dx; });
      }
      const std::vector<double> dbranch = b.dbranch.found();
      expect_dropped(b.dbranch, dropped(b.dx.found(), nullptr, back.dropout), "dbranch " + b.text());
      expect_as_exact_as_plain("branch_sums " + b.text(), b.branch_sums, [&](auto zero) {
        using T = decltype(zero);
        std::vector<T> sums(b.branch_sums.values().begin(), b.branch_sums.values().end());
        for (std::size_t i = 0; i < dbranch.size(); ++i)
          sums[i % static_cast<std::size_t>(b.width)] += static_cast<T>(dbranch[i]);
        return sums;
      });
    }
  });
}

// Without dropout, and with one type, the branch's gradient is dx.
TEST_P(LayerNormTest, AGradientThatPassesUnchangedNeedsNoCopy) {
  if (residual_types().back() != compute()) return;  // fp16, whose stream is fp32
  for (const std::int64_t width : widths())
    for (const HeldGradient held : {HeldGradient::none, HeldGradient::of_x, HeldGradient::of_y}) {
      Branch b = branch(compute(), rows_for(width), width);
      ops::run(ctx, b.norm(b.residual));
      const LayerNormBackwardArgs norm = b.backward(held);
      run(LayerNormBackwardDropoutArgs{norm, dropout(b.dx, b.dbranch, 0), b.branch_sums},
          {&b.dx, &b.dgain, &b.dbias, &b.dbranch, &b.branch_sums});
      const auto bits = [&] { return std::vector{b.dx.raw(), b.dgain.raw(), b.dbias.raw(), b.branch_sums.raw()}; };
      const auto expected = bits();
      EXPECT_EQ(b.dbranch.raw(), expected.front()) << b.text();
      run(LayerNormBackwardDropoutArgs{norm, dropout(b.dx, {}, 0), b.branch_sums},
          {&b.dx, &b.dgain, &b.dbias, &b.branch_sums});
      EXPECT_EQ(bits(), expected) << b.text();
      run(LayerNormBackwardDropoutArgs{norm, dropout(b.dx, {}, 0)}, {&b.dx, &b.dgain, &b.dbias});
      EXPECT_EQ(bits(), expected) << b.text() << ", without sums";
    }
}

TEST_P(LayerNormTest, ResultsMayOverwriteArguments) {
  Branch b = branch(exact(), 60, 96);
  ops::run(ctx, add_and_norm(b));
  const auto sum = b.sum.raw(), y = b.y.raw();
  DropoutAddLayerNormArgs args = add_and_norm(b);
  args.x = args.dropout.y = b.residual;
  run(args, {&b.residual});
  EXPECT_EQ(b.residual.raw(), sum);
  b.residual.reset();
  if (compute() == exact()) {
    args.x = args.dropout.y = b.branch;
    run(args, {&b.branch});
    EXPECT_EQ(b.branch.raw(), sum);
  }
  EXPECT_EQ(b.y.raw(), y);
  ops::run(ctx, b.norm(b.residual));
  LayerNormBackwardArgs back = b.backward();
  ops::run(ctx, LayerNormBackwardDropoutArgs{back, dropout(b.dx, b.dbranch)});
  run(LayerNormBackwardDropoutArgs{back, dropout(b.dx, b.dy)}, {&b.dy});
  EXPECT_EQ(b.dy.raw(), b.dbranch.raw());
  if (compute() != exact()) return;
  b.dy.reset();
  const auto dx = b.dx.raw();
  back.dx = b.dy;
  run(back, {&b.dy});
  EXPECT_EQ(b.dy.raw(), dx);
}

// Rows that fill their lanes use other instructions, such as 16-byte copies, than rows in memory that only allows 8
// bytes at once, but give the same numbers. Rows of single elements are summed in another order.
TEST_P(LayerNormTest, RowsMayBeApartAndUnaligned) {
  for (const Dtype residual : residual_types())
    for (const std::int64_t width : {100, 128, 256, 512, 1024, 4096})
      for (const std::int64_t rows : {1, 7, 100})
        for (const std::int64_t begin : {0, 1, 4}) {
          Branch b = branch(residual, rows, width);
          const Operand y = filled({rows, width + 4}, compute(), 7), dy = filled({rows, width + 4}, compute(), 7);
          const auto part = [&](const Operand& o) { return o->slice(1, begin, begin + width); };
          const bool same_bits = begin != 1 || device() == Device::cpu;
          LayerNormArgs norm = b.norm(b.residual);
          ops::run(ctx, norm);
          norm.y = part(y);
          ops::run(ctx, norm);
          const std::vector<double> dense = b.y.found(), apart = y.found();
          std::vector<double> inside;
          for (std::int64_t i = 0; i < y->count(); ++i) {
            const std::int64_t column = i % (width + 4) - begin;
            const double found = apart[static_cast<std::size_t>(i)];
            if (column >= 0 && column < width)
              inside.push_back(found);
            else
              ASSERT_EQ(found, 7) << "beside y " << b.text() << " from " << begin;
          }
          if (same_bits)
            ASSERT_EQ(inside, dense) << "y " << b.text() << " from " << begin;
          else
            expect_as_exact_as_plain("y " + b.text(), compute(), inside, [&](auto zero) {
              return plain<decltype(zero)>(b, b.residual.values(), Result::y);
            });

          ops::run(ctx, b.backward());
          const std::vector<double> dx = b.dx.found(), dgain = b.dgain.found();
          b.dgain.reset();
          const Tensor rows_of_dy(part(dy).data(), compute(), {1, rows, width}, {0, width + 4, 1});
          ops::run(ctx, kernels::CopyRowsArgs{b.dy->reshape({1, rows, width}), rows_of_dy});
          LayerNormBackwardArgs back = b.backward();
          back.dy = part(dy);
          ops::run(ctx, back);
          if (same_bits) {
            ASSERT_EQ(b.dx.found(), dx) << "dx " << b.text() << " from " << begin;
            ASSERT_EQ(b.dgain.found(), dgain) << "dgain " << b.text() << " from " << begin;
          } else {
            expect_as_exact_as_plain("dx " + b.text(), b.dx,
                                     [&](auto zero) { return plain_backward<decltype(zero)>(b).dx; });
            expect_as_exact_as_plain("dgain " + b.text(), b.dgain,
                                     [&](auto zero) { return plain_backward<decltype(zero)>(b).dgain; });
          }
        }
}

// A width of 1 has no variance: y is the bias, and the terms of dx cancel to within their rounding.
TEST_P(LayerNormTest, AWidthOfOneGivesTheBiasAndNoGradient) {
  Branch b = branch(exact(), 9, 1);
  ops::run(ctx, b.norm(b.residual));
  ops::run(ctx, b.backward());
  const std::vector<double> y = b.y.found(), dx = b.dx.found(), rstd = b.rstd.found();
  EXPECT_EQ(b.dgain.found(), b.dgain.values());
  for (std::int64_t r = 0; r < 9; ++r) {
    const auto i = static_cast<std::size_t>(r);
    EXPECT_EQ(y[i], rounded(b.bias.at(0), compute()));
    EXPECT_LE(std::abs(dx[i]), rstd[i] * std::abs(b.dy.at(r) * b.gain.at(0)) * 4 * half_step_of(exact()));
  }
}

TEST_P(LayerNormTest, SurvivesAMeanFarLargerThanTheDeviation) {
  Branch b = branch(exact(), 4, 64);
  std::vector<double> values = b.residual.values();
  for (double& x : values) x = 4096 + std::round(8 * x) / 8;
  b.residual = with_values({4, 64}, exact(), values);
  ops::run(ctx, b.norm(b.residual));
  expect_as_exact_as_plain("y", b.y, [&](auto zero) { return plain<decltype(zero)>(b, values, Result::y); });
}

TEST_P(LayerNormTest, GradientsEqualFiniteDifferences) {
  if (compute() != Dtype::f64) return;
  Branch b = branch(exact(), 70, 7);
  const Operand dgain = filled({7}, exact(), 0), dbias = filled({7}, exact(), 0);
  // The residual stream's own gradient bypasses the norm: loss = <y, dy> + <x, dx>.
  LayerNormBackwardArgs back = b.backward(HeldGradient::of_x);
  back.dgain = dgain;
  back.dbias = dbias;
  const auto loss = [&] {
    ops::run(ctx, b.norm(b.residual));
    double total = 0;
    for (std::int64_t i = 0; i < 490; ++i)
      total += b.y->as<double>()[i] * b.dy.at(i) + b.residual->as<double>()[i] * b.dx.at(i);
    return total;
  };
  loss();
  ops::run(ctx, back);
  expect_gradient("dx", b.residual, b.dx, loss, 500);
  expect_gradient("dgain", b.gain, dgain, loss);
  expect_gradient("dbias", b.bias, dbias, loss);
}

// The masks of a global batch do not depend on how it is cut into micro-batches and ranks.
TEST_P(LayerNormTest, DropoutDoesNotDependOnTheSplitIntoMicroBatches) {
  constexpr std::int64_t rows = 42, width = 15, each = 7 * width;  // micro-batches start inside a group of four
  Branch b = branch(exact(), rows, width);
  run(add_and_norm(b, 0.4f, 0), {&b.sum});
  const auto whole = b.sum.raw();
  for (const std::int64_t micro : {7, 14, 21}) {
    b.sum.reset();
    for (std::int64_t begin = 0; begin < rows; begin += micro) {
      const auto part = [&](const Tensor& t) { return t.slice(0, begin, begin + micro); };
      DropoutAddLayerNormArgs args{{part(b.sum), b.gain, b.bias, part(b.y)}, dropout(part(b.branch), part(b.sum))};
      args.dropout.residual = part(b.residual);
      args.dropout.first_element = begin / 7 * each;
      ops::run(ctx, args);
    }
    EXPECT_EQ(b.sum.raw(), whole) << micro;
  }
}

TEST_P(LayerNormTest, MasksDifferByStepLayerAndSeed) {
  Branch b = branch(exact(), 8, 64);
  const Operand later = filled({1}, Dtype::i64, 12);
  const auto sum = [&](auto change) {
    DropoutAddLayerNormArgs args = add_and_norm(b, 0.5f);
    change(args.dropout);
    ops::run(ctx, args);
    return b.sum.raw();
  };
  const auto before = sum([](DropoutArgs&) {});
  EXPECT_NE(before, sum([&](DropoutArgs& d) { d.step = later->as<std::int64_t>(); }));
  EXPECT_NE(before, sum([](DropoutArgs& d) { ++d.layer; }));
  EXPECT_NE(before, sum([](DropoutArgs& d) { ++d.seed; }));
  EXPECT_EQ(before, sum([](DropoutArgs&) {}));
}

TEST_P(LayerNormTest, DropoutKeepsTheGivenShareAndTheMean) {
  const Shape shape{1000, 100};
  for (const float p : {0.01f, 0.25f, 0.4f, 0.9f}) {
    Branch b = branch(exact(), 1000, 100);
    b.branch = filled(shape, compute(), 1);
    b.residual = filled(shape, exact(), 0);
    ops::run(ctx, add_and_norm(b, p));
    double kept = 0, sum = 0;
    for (const double x : b.sum.found()) {
      kept += x != 0;
      sum += x;
    }
    const double n = 1e5, deviation = std::sqrt(p * (1 - p) / n);
    EXPECT_NEAR(kept / n, 1 - p, 5 * deviation) << p;
    EXPECT_NEAR(sum / n, 1, 5 * deviation / (1 - p)) << p;
  }
}

TEST_P(LayerNormTest, RefusesWhatDoesNotMatch) {
  const Branch b = branch(exact(), 3, 8), other = branch(exact(), 4, 7);
  const auto refuses = [&](auto change) {
    LayerNormArgs args = b.norm(b.residual);
    change(args);
    EXPECT_THROW(ops::run(ctx, args), InternalError);
  };
  refuses([&](LayerNormArgs& a) { a.gain = other.gain; });
  refuses([&](LayerNormArgs& a) { a.y = other.y; });
  refuses([&](LayerNormArgs& a) { a.mean = other.mean; });
  refuses([&](LayerNormArgs& a) { a.bias = Tensor(a.bias.data(), Dtype::i32, {8}); });
  EXPECT_THROW(ops::run(ctx, add_and_norm(b, 1.0f)), InternalError);
  // A branch's gradient may be absent only if it is dx.
  for (const Dtype residual : residual_types()) {
    const Branch c = branch(residual, 3, 8);
    EXPECT_THROW(ops::run(ctx, LayerNormBackwardDropoutArgs{c.backward(), dropout(c.dx, {}, 0.4f)}), InternalError);
    const LayerNormBackwardDropoutArgs without{c.backward(), dropout(c.dx, {}, 0)};
    if (residual == compute())
      EXPECT_NO_THROW(ops::run(ctx, without));
    else
      EXPECT_THROW(ops::run(ctx, without), InternalError);
  }
}

}  // namespace
}  // namespace longstride::testing
