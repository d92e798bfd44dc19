#include "kernels/short_convolution/short_convolution.h"

#include "framework/ops/basic.h"
#include "tests/ops/op_test.h"
#include "tests/support/finite_differences.h"

namespace longstride::testing::short_convolution_test {
namespace {

using kernels::ShortConvolutionArgs;
using kernels::ShortConvolutionBackwardArgs;

struct Sizes {
  std::int64_t batch, n, channels, width;
  bool before = false, documents = false, bias = false;

  Shape x() const { return {batch, n, channels}; }
  Shape kept() const { return {batch, width - 1, channels}; }
};
const Sizes sizes[] = {{1, 1, 1, 4},
                       {2, 2, 3, 4, true},
                       {2, 37, 5, 2},
                       {1, 150, 24, 3, true},
                       {3, 90, 16, 4, true, true},
                       {2, 70, 300, 4, false, true},
                       {3, 90, 16, 4, true, true, true}};

class ShortConvolutionTest : public OpTest {
 protected:
  struct Case {
    Sizes s;
    Operand x, dy, weight, before, begin, bias;

    Tensor bias_of() const { return s.bias ? Tensor(bias) : Tensor{}; }
    Tensor before_of() const { return s.before ? Tensor(before) : Tensor{}; }
    Tensor begin_of() const { return s.documents ? Tensor(begin) : Tensor{}; }
    ShortConvolutionArgs args(const Operand& y) const {
      return {.x = x, .weight = weight, .y = y, .before = before_of(), .begin = begin_of(), .bias = bias_of()};
    }
    ShortConvolutionBackwardArgs backward(const Operand& dx, const Operand& dweight, const Operand& dbias) const {
      return {.dy = dy,
              .x = x,
              .weight = weight,
              .dx = dx,
              .dweight = dweight,
              .before = before_of(),
              .begin = begin_of(),
              .bias = bias_of(),
              .dbias = s.bias ? Tensor(dbias) : Tensor{}};
    }
    // Channel c of row p as position t of sequence q sees it.
    double seen(std::int64_t q, std::int64_t p, std::int64_t t, std::int64_t c) const {
      const std::int64_t first = s.documents ? static_cast<std::int64_t>(begin.at(q * s.n + t)) : 0;
      if (p >= 0) return p >= first ? x.at((q * s.n + p) * s.channels + c) : 0;
      return s.before && first == 0 ? before.at((q * (s.width - 1) + s.width - 1 + p) * s.channels + c) : 0;
    }
    template <class T>
    T sum(std::int64_t q, std::int64_t t, std::int64_t c) const {
      T out = s.bias ? static_cast<T>(bias.at(c)) : T(0);
      for (std::int64_t j = 0; j < s.width; ++j)
        out += static_cast<T>(weight.at(c * s.width + s.width - 1 - j)) * static_cast<T>(seen(q, t - j, t, c));
      return out;
    }
    template <class F>
    void each(F&& f) const {
      for (std::int64_t q = 0; q < s.batch; ++q)
        for (std::int64_t t = 0; t < s.n; ++t)
          for (std::int64_t c = 0; c < s.channels; ++c) f(q, t, c);
    }
  };

  Case drawn(const Sizes& s) {
    std::vector<double> begins;  // documents of 17 positions
    for (std::int64_t i = 0; i < s.batch * s.n; ++i) begins.push_back(static_cast<double>(i % s.n / 17 * 17));
    return {s,
            normals(s.x(), 1),
            normals(s.x(), 2),
            normals({s.channels, s.width}, exact(), 3),
            normals(s.kept(), 4),
            with_values({s.batch, 1, s.n}, Dtype::i32, std::move(begins)),
            normals({s.channels}, exact(), 6)};
  }
};
LONGSTRIDE_OP_TESTS(ShortConvolutionTest);

template <class T>
T sigmoid(T x) {
  return 1 / (1 + std::exp(-x));
}

TEST_P(ShortConvolutionTest, IsAsExactAsAPlainLoop) {
  for (const Sizes& s : sizes) {
    const Case c = drawn(s);
    Operand y = result(s.x());
    run(c.args(y), {&y});
    expect_as_exact_as_plain("y", y, [&](auto zero) {
      using T = decltype(zero);
      std::vector<T> out;
      c.each([&](std::int64_t q, std::int64_t t, std::int64_t channel) {
        const T p = c.sum<T>(q, t, channel);
        out.push_back(p * sigmoid(p));
      });
      return out;
    });
  }
}

TEST_P(ShortConvolutionTest, GradientsAreAsExact) {
  for (const Sizes& s : sizes) {
    const Case c = drawn(s);
    Operand dx = result(s.x()), dweight = normals({s.channels, s.width}, exact(), 5);
    Operand dbias = normals({s.channels}, exact(), 7);
    std::vector<Operand*> written{&dx, &dweight};
    if (s.bias) written.push_back(&dbias);
    run(c.backward(dx, dweight, dbias), written);
    const auto plain = [&](auto zero) {
      using T = decltype(zero);
      struct {
        std::vector<T> first, second, bias;
      } out;
      out.bias.assign(dbias.values().begin(), dbias.values().end());
      out.first.assign(static_cast<std::size_t>(c.x->count()), T(0));
      out.second.assign(dweight.values().begin(), dweight.values().end());
      c.each([&](std::int64_t q, std::int64_t t, std::int64_t channel) {
        const T p = c.sum<T>(q, t, channel), dy = static_cast<T>(c.dy.at((q * s.n + t) * s.channels + channel));
        const T d = dy * (sigmoid(p) + p * sigmoid(p) * (1 - sigmoid(p)));
        out.bias[static_cast<std::size_t>(channel)] += d;
        for (std::int64_t j = 0; j < s.width; ++j) {
          const auto tap = static_cast<std::size_t>(channel * s.width + s.width - 1 - j);
          out.second[tap] += d * static_cast<T>(c.seen(q, t - j, t, channel));
          if (t >= j && (!s.documents || t - j >= static_cast<std::int64_t>(c.begin.at(q * s.n + t))))
            out.first[static_cast<std::size_t>((q * s.n + t - j) * s.channels + channel)] +=
                d * static_cast<T>(c.weight.at(static_cast<std::int64_t>(tap)));
        }
      });
      return out;
    };
    expect_as_exact_as_plain("dx", dx, [&](auto zero) { return plain(zero).first; });
    expect_as_exact_as_plain("dweight", dweight, [&](auto zero) { return plain(zero).second; });
    if (s.bias) expect_as_exact_as_plain("dbias", dbias, [&](auto zero) { return plain(zero).bias; });
  }
}

TEST_P(ShortConvolutionTest, GradientsEqualFiniteDifferences) {
  if (compute() != Dtype::f64) return;
  const Sizes s{2, 40, 3, 4, true, true, true};
  const Case c = drawn(s);
  const Operand y = result(s.x()), dx = result(s.x()), dweight = filled({3, 4}, exact(), 0),
                dbias = filled({3}, exact(), 0);
  ops::run(ctx, c.backward(dx, dweight, dbias));
  const auto loss = [&] {
    ops::run(ctx, c.args(y));
    double total = 0;
    for (std::int64_t i = 0; i < y->count(); ++i) total += y->as<double>()[i] * c.dy.at(i);
    return total;
  };
  expect_gradient("x", c.x, dx, loss);
  expect_gradient("weight", c.weight, dweight, loss);
  expect_gradient("bias", c.bias, dbias, loss);
}

// In pieces, down to single rows that write over those before them, as in generation.
TEST_P(ShortConvolutionTest, PiecesThatHandOverTheirRowsAreTheWhole) {
  const Sizes s{1, 12, 40, 4};
  const Case c = drawn(s);
  const Operand y = result(s.x()), pieces = result(s.x()), kept = filled(s.kept(), compute(), 0),
                next = result(s.kept());
  ops::run(ctx, c.args(y));
  const auto rows = [](const Operand& t, std::int64_t from, std::int64_t to) { return Tensor(t).slice(1, from, to); };
  std::int64_t at = 0;
  for (const std::int64_t count : {2, 1, 6, 1, 1, 1}) {
    const Operand& after = count == 1 ? kept : next;
    ops::run(ctx, ShortConvolutionArgs{.x = rows(c.x, at, at + count),
                                       .weight = c.weight,
                                       .y = rows(pieces, at, at + count),
                                       .before = kept,
                                       .after = after});
    if (count > 1) ops::copy(ctx, next, kept);
    at += count;
  }
  EXPECT_EQ(pieces.raw(), y.raw());
}

// The rows behind a convolution are those of its last document.
TEST_P(ShortConvolutionTest, ADocumentHandsOverItsOwnRowsAlone) {
  const Sizes s{1, 18, 2, 4, true, true};  // one position of the last document
  const Case c = drawn(s);
  Operand y = result(s.x()), after = result(s.kept());
  ShortConvolutionArgs args = c.args(y);
  args.after = after;
  run(args, {&y, &after});
  for (std::int64_t i = 0; i < 6; ++i)
    EXPECT_EQ(after.found()[static_cast<std::size_t>(i)], i < 4 ? 0 : c.x.at(17 * 2 + i - 4)) << i;
}

TEST_P(ShortConvolutionTest, RefusesOtherShapes) {
  const Operand x = normals({1, 3, 2}, 1), y = result({1, 3, 2}), wide = normals({2, 5}, exact(), 2),
                kept = normals({1, 3, 2}, 3), weight = normals({2, 4}, exact(), 4);
  EXPECT_THROW(ops::run(ctx, ShortConvolutionArgs{.x = x, .weight = wide, .y = y}), InternalError);
  EXPECT_THROW(ops::run(ctx, ShortConvolutionArgs{.x = x, .weight = weight, .y = y, .before = kept, .after = kept}),
               InternalError);
}

}  // namespace
}  // namespace longstride::testing::short_convolution_test
