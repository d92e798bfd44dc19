#include "kernels/scan_gates/scan_gates.h"

#include "tests/ops/op_test.h"
#include "tests/support/finite_differences.h"

namespace longstride::testing::scan_gates_test {
namespace {

using kernels::ScanGate;
using kernels::ScanGatesArgs;
using kernels::ScanGatesBackwardArgs;

constexpr ScanGate gates[] = {ScanGate::softplus, ScanGate::step, ScanGate::log_sigmoid, ScanGate::sigmoid};
constexpr std::pair<std::int64_t, std::int64_t> shapes[] = {{1, 1}, {7, 3}, {260, 8}, {131, 70}};
constexpr double factor = 0.75;

template <class T>
T softplus(T x) {
  return x > 0 ? x + std::log1p(std::exp(-x)) : std::log1p(std::exp(x));
}
template <class T>
T sigmoid(T x) {
  return 1 / (1 + std::exp(-x));
}

class ScanGatesTest : public OpTest {
 protected:
  struct Case {
    ScanGate gate;
    std::int64_t rows, columns;
    Operand x, dy, rate, bias;

    Tensor rate_of() const { return gate == ScanGate::softplus ? Tensor(rate) : Tensor{}; }
    Tensor bias_of() const { return gate == ScanGate::sigmoid ? Tensor{} : Tensor(bias); }
    ScanGatesArgs args(const Operand& y) const { return {gate, x, y, rate_of(), bias_of(), factor}; }
    ScanGatesBackwardArgs backward(const Operand& dx, const Operand& drate, const Operand& dbias) const {
      return {.gate = gate,
              .dy = dy,
              .x = x,
              .dx = dx,
              .rate = rate_of(),
              .bias = bias_of(),
              .drate = rate_of().given() ? Tensor(drate) : Tensor{},
              .dbias = bias_of().given() ? Tensor(dbias) : Tensor{},
              .factor = factor};
    }
    template <class T>
    T at(std::int64_t i) const {
      return static_cast<T>(x.at(i)) + (gate == ScanGate::sigmoid ? T(0) : static_cast<T>(bias.at(i % columns)));
    }
    template <class T>
    T value(std::int64_t i) const {
      const T z = at<T>(i);
      if (gate == ScanGate::sigmoid) return T(factor) * sigmoid(z);
      if (gate == ScanGate::step) return softplus(z);
      return gate == ScanGate::softplus ? -std::exp(static_cast<T>(rate.at(i % columns))) * softplus(z)
                                        : -T(factor) * softplus(-z);
    }
    template <class T>
    T slope(std::int64_t i) const {
      const T z = at<T>(i);
      if (gate == ScanGate::sigmoid) return T(factor) * sigmoid(z) * sigmoid(-z);
      if (gate == ScanGate::step) return sigmoid(z);
      return gate == ScanGate::softplus ? -std::exp(static_cast<T>(rate.at(i % columns))) * sigmoid(z)
                                        : T(factor) * sigmoid(-z);
    }
  };

  Case drawn(ScanGate gate, std::int64_t rows, std::int64_t columns) {
    return {gate,
            rows,
            columns,
            normals({rows, columns}, 1, 3),
            normals({rows, columns}, exact(), 2),
            normals({columns}, exact(), 3),
            normals({columns}, exact(), 4)};
  }
};
LONGSTRIDE_OP_TESTS(ScanGatesTest);

TEST_P(ScanGatesTest, AreAsExactAsPlainLoops) {
  for (const ScanGate gate : gates)
    for (const auto& [rows, columns] : shapes) {
      const Case c = drawn(gate, rows, columns);
      Operand y = result({rows, columns}, exact()), dx = result({rows, columns});
      Operand drate = normals({columns}, exact(), 5), dbias = normals({columns}, exact(), 6);
      run(c.args(y), {&y});
      std::vector<Operand*> written{&dx};
      if (c.rate_of().given()) written.push_back(&drate);
      if (c.bias_of().given()) written.push_back(&dbias);
      run(c.backward(dx, drate, dbias), written);
      const auto all = [&](auto&& f) {
        std::vector<decltype(f(std::int64_t{0}))> out;
        for (std::int64_t i = 0; i < c.rows * c.columns; ++i) out.push_back(f(i));
        return out;
      };
      expect_as_exact_as_plain(
          "y", y, [&](auto zero) { return all([&](std::int64_t i) { return c.value<decltype(zero)>(i); }); });
      expect_as_exact_as_plain("dx", dx, [&](auto zero) {
        using T = decltype(zero);
        return all([&](std::int64_t i) { return static_cast<T>(c.dy.at(i)) * c.slope<T>(i); });
      });
      const auto sums = [&](const Operand& before, auto&& f) {
        using T = decltype(f(std::int64_t{0}));
        std::vector<T> out(before.values().begin(), before.values().end());
        for (std::int64_t i = 0; i < c.rows * c.columns; ++i) out[static_cast<std::size_t>(i % c.columns)] += f(i);
        return out;
      };
      if (c.bias_of().given())
        expect_as_exact_as_plain("dbias", dbias, [&](auto zero) {
          using T = decltype(zero);
          return sums(dbias, [&](std::int64_t i) { return static_cast<T>(c.dy.at(i)) * c.slope<T>(i); });
        });
      if (c.rate_of().given())
        expect_as_exact_as_plain("drate", drate, [&](auto zero) {
          using T = decltype(zero);
          return sums(drate, [&](std::int64_t i) { return static_cast<T>(c.dy.at(i)) * c.value<T>(i); });
        });
    }
}

TEST_P(ScanGatesTest, GradientsEqualFiniteDifferences) {
  if (compute() != Dtype::f64) return;
  for (const ScanGate gate : gates) {
    const Case c = drawn(gate, 5, 3);
    const Operand y = result({5, 3}), dx = result({5, 3}), drate = filled({3}, exact(), 0),
                  dbias = filled({3}, exact(), 0);
    ops::run(ctx, c.backward(dx, drate, dbias));
    const auto loss = [&] {
      ops::run(ctx, c.args(y));
      double total = 0;
      for (std::int64_t i = 0; i < 15; ++i) total += y->as<double>()[i] * c.dy.at(i);
      return total;
    };
    expect_gradient("x", c.x, dx, loss);
    if (c.rate_of().given()) expect_gradient("rate", c.rate, drate, loss);
    if (c.bias_of().given()) expect_gradient("bias", c.bias, dbias, loss);
  }
}

// A decay is at most 0 and finite, however large its argument.
TEST_P(ScanGatesTest, DecaysOfLargeNumbersAreFinite) {
  const Operand x = with_values({4, 1}, compute(), {-3e4, -100, 100, 3e4}), none = filled({1}, exact(), 0);
  for (const ScanGate gate : {ScanGate::softplus, ScanGate::log_sigmoid}) {
    Operand y = result({4, 1}, exact());
    run(ScanGatesArgs{gate, x, y, gate == ScanGate::softplus ? Tensor(none) : Tensor{}, none, 1}, {&y});
    for (const double value : y.found()) EXPECT_TRUE(value <= 0 && std::isfinite(value)) << value;
  }
}

TEST_P(ScanGatesTest, RefusesOtherParameters) {
  const Operand x = normals({4, 2}, 1), y = result({4, 2}, exact()), two = normals({2}, exact(), 2);
  EXPECT_THROW(ops::run(ctx, ScanGatesArgs{ScanGate::softplus, x, y, {}, two, 1}), InternalError);
  EXPECT_THROW(ops::run(ctx, ScanGatesArgs{ScanGate::log_sigmoid, x, y, {}, {}, 1}), InternalError);
  EXPECT_THROW(ops::run(ctx, ScanGatesArgs{ScanGate::sigmoid, x, y, {}, two, 1}), InternalError);
}

}  // namespace
}  // namespace longstride::testing::scan_gates_test
