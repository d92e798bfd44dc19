#include "kernels/sink/sink.h"

#include <limits>

#include "tests/ops/op_test.h"

namespace longstride::testing::sink_test {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();

class SinkTest : public OpTest {
 protected:
  struct Sizes {
    std::int64_t batch, n, heads, size;
    std::int64_t rows() const { return batch * n * heads; }
    Shape o() const { return {batch, n, heads, size}; }
    Shape lse() const { return {batch, heads, n}; }
    std::int64_t head(std::int64_t row) const { return row % heads; }
    // The element of lse of a row (sequence, position, head).
    std::int64_t of_lse(std::int64_t row) const {
      return (row / heads / n * heads + row % heads) * n + row / heads % n;
    }
  };
  const std::vector<Sizes> sizes = {{1, 1, 1, 1}, {2, 13, 3, 24}, {1, 70, 2, 7}, {3, 90, 4, 64}};

  // Results of attention, where every eleventh row sees no key.
  std::pair<Operand, Operand> attended(const Sizes& s) {
    std::vector<double> o = normals(s.o(), 1).values(), lse = normals(s.lse(), exact(), 2, 3).values();
    for (std::int64_t row = 10; row < s.rows(); row += 11) {
      lse[static_cast<std::size_t>(s.of_lse(row))] = -infinity;
      std::fill_n(o.begin() + row * s.size, s.size, 0.0);
    }
    return {with_values(s.o(), compute(), std::move(o)), with_values(s.lse(), exact(), std::move(lse))};
  }
};
LONGSTRIDE_OP_TESTS(SinkTest);

TEST_P(SinkTest, IsAsExactAsAPlainLoop) {
  for (const Sizes& s : sizes) {
    auto [o, lse] = attended(s);
    const Operand sink = normals({s.heads}, exact(), 3, 2);
    run(kernels::SinkArgs{sink, o, lse}, {&o, &lse});
    expect_as_exact_as_plain("o", o, [&](auto zero) {
      using T = decltype(zero);
      std::vector<T> out;
      for (std::int64_t row = 0; row < s.rows(); ++row) {
        const T e = std::exp(static_cast<T>(sink.at(s.head(row))) - static_cast<T>(lse.at(s.of_lse(row))));
        for (std::int64_t d = 0; d < s.size; ++d) out.push_back(static_cast<T>(o.at(row * s.size + d)) / (1 + e));
      }
      return out;
    });
    expect_as_exact_as_plain("lse", lse, [&](auto zero) {
      using T = decltype(zero);
      std::vector<T> out(static_cast<std::size_t>(s.rows()));
      for (std::int64_t row = 0; row < s.rows(); ++row)
        out[static_cast<std::size_t>(s.of_lse(row))] =
            std::log(std::exp(static_cast<T>(lse.at(s.of_lse(row)))) + std::exp(static_cast<T>(sink.at(s.head(row)))));
      return out;
    });
  }
}

TEST_P(SinkTest, ARowThatSeesNoKeyHasTheSinkAlone) {
  const Operand sink = normals({2}, exact(), 3);
  Operand o = filled({1, 3, 2, 5}, compute(), 0), lse = filled({1, 2, 3}, exact(), -infinity);
  run(kernels::SinkArgs{sink, o, lse}, {&o, &lse});
  for (const double x : o.found()) EXPECT_EQ(x, 0);
  for (std::int64_t i = 0; i < 6; ++i) EXPECT_EQ(lse.found()[static_cast<std::size_t>(i)], sink.at(i / 3));
}

// dsink follows the output by central differences of a plain loop in double, and is added to.
TEST_P(SinkTest, TheGradientIsAFiniteDifferenceOfTheOutput) {
  for (const Sizes& s : sizes) {
    const auto [before, lse_before] = attended(s);
    const Operand sink = normals({s.heads}, exact(), 3, 2), dout = normals(s.o(), 4);
    Operand dsink = normals({s.heads}, exact(), 5);
    const auto share = [&](std::int64_t row, double logit) {
      return 1 / (1 + std::exp(logit - lse_before.at(s.of_lse(row))));
    };
    // With the sink, in double: only the rounding of the arguments remains.
    std::vector<double> o(before.values().size()), lse(lse_before.values().size()), terms(1), expected;
    for (std::int64_t h = 0; h < s.heads; ++h) {
      const double logit = sink.at(h), step = 1e-5;
      double slope = dsink.at(h), magnitude = 0;
      for (std::int64_t row = h; row < s.rows(); row += s.heads) {
        const auto at = static_cast<std::size_t>(s.of_lse(row));
        lse[at] = std::max(logit, lse_before.at(s.of_lse(row))) +
                  std::log1p(std::exp(-std::abs(logit - lse_before.at(s.of_lse(row)))));
        for (std::int64_t e = row * s.size; e < (row + 1) * s.size; ++e) {
          o[static_cast<std::size_t>(e)] = before.at(e) * share(row, logit);
          slope += dout.at(e) * before.at(e) * (share(row, logit + step) - share(row, logit - step)) / (2 * step);
          magnitude += std::abs(dout.at(e) * before.at(e)) * share(row, logit) * (1 - share(row, logit));
        }
      }
      expected.push_back(slope);
      terms.push_back(magnitude);
    }
    const Operand with_sink = with_values(s.o(), compute(), [&] {
      std::vector<double> stored = o;
      for (double& x : stored) x = rounded(static_cast<float>(x), compute());
      return compute() == Dtype::f64 ? o : stored;
    }());
    const Operand lse_with_sink = with_values(s.lse(), exact(), lse);
    run(kernels::SinkBackwardArgs{sink, with_sink, lse_with_sink, dout, dsink}, {&dsink});
    // Every term's factors are rounded once: o to the compute type, its weight to the exact one.
    const double rounding = compute() == Dtype::f64 ? 1e-9 : 4 * half_step_of(compute());
    for (std::int64_t h = 0; h < s.heads; ++h)
      EXPECT_NEAR(dsink.found()[static_cast<std::size_t>(h)], expected[static_cast<std::size_t>(h)],
                  rounding * (1 + terms[static_cast<std::size_t>(h + 1)]))
          << "head " << h << " of " << s.heads;
  }
}

TEST_P(SinkTest, RefusesOtherShapes) {
  const Operand o = normals({2, 5, 3, 4}, 1), lse = normals({2, 3, 5}, exact(), 2), sink = normals({3}, exact(), 3);
  const Operand two = normals({2}, exact(), 4), other = normals({2, 5, 3}, exact(), 5);
  EXPECT_THROW(ops::run(ctx, kernels::SinkArgs{two, o, lse}), InternalError);
  EXPECT_THROW(ops::run(ctx, kernels::SinkArgs{sink, o, other}), InternalError);
  EXPECT_THROW(ops::run(ctx, kernels::SinkBackwardArgs{sink, o, lse, lse, sink}), InternalError);
}

}  // namespace
}  // namespace longstride::testing::sink_test
