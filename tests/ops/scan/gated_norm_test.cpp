#include "kernels/gated_norm/gated_norm.h"

#include "tests/ops/op_test.h"
#include "tests/support/finite_differences.h"

namespace longstride::testing::gated_norm_test {
namespace {

using kernels::GatedNormArgs;
using kernels::GatedNormBackwardArgs;

constexpr std::pair<std::int64_t, std::int64_t> shapes[] = {{1, 2}, {9, 7}, {300, 64}, {70, 200}};

template <class T>
T sigmoid(T x) {
  return 1 / (1 + std::exp(-x));
}

class GatedNormTest : public OpTest {
 protected:
  struct Case {
    bool normed, gated;
    std::int64_t rows, size;
    Operand x, dy, gain, gate;

    Tensor gain_of() const { return normed ? Tensor(gain) : Tensor{}; }
    Tensor gate_of() const { return gated ? Tensor(gate) : Tensor{}; }
    GatedNormArgs args(const Operand& y) const { return {x, y, gain_of(), gate_of()}; }
    GatedNormBackwardArgs backward(const Operand& dx, const Operand& dgain, const Operand& dgate) const {
      return {.dy = dy,
              .x = x,
              .dx = dx,
              .gain = gain_of(),
              .gate = gate_of(),
              .dgain = normed ? Tensor(dgain) : Tensor{},
              .dgate = gated ? Tensor(dgate) : Tensor{}};
    }
    template <class T>
    T root(std::int64_t row) const {
      T squares = 0;
      for (std::int64_t j = 0; j < size; ++j)
        squares += static_cast<T>(x.at(row * size + j)) * static_cast<T>(x.at(row * size + j));
      return normed ? std::sqrt(squares / static_cast<T>(size) + T(1e-6)) : T(1);
    }
    template <class T>
    T scale(std::int64_t j) const {
      return normed ? static_cast<T>(gain.at(j)) : T(1);
    }
    template <class T>
    T silu(std::int64_t i) const {
      return gated ? static_cast<T>(gate.at(i)) * sigmoid(static_cast<T>(gate.at(i))) : T(1);
    }
  };

  std::vector<Case> cases(std::int64_t rows, std::int64_t size) {
    std::vector<Case> out;
    for (const auto& [normed, gated] : {std::pair{true, true}, {true, false}, {false, true}})
      out.push_back({normed, gated, rows, size, normals({rows, size}, 1, 2), normals({rows, size}, 2),
                     normals({size}, exact(), 3), normals({rows, size}, 4, 2)});
    return out;
  }
};
LONGSTRIDE_OP_TESTS(GatedNormTest);

template <class T, class Case>
std::vector<T> plain(const Case& c) {
  std::vector<T> out;
  for (std::int64_t i = 0; i < c.rows * c.size; ++i)
    out.push_back(static_cast<T>(c.x.at(i)) / c.template root<T>(i / c.size) * c.template scale<T>(i % c.size) *
                  c.template silu<T>(i));
  return out;
}

template <class T>
struct Gradients {
  std::vector<T> dx, dgain, dgate;
};

template <class T, class Case>
Gradients<T> plain_backward(const Case& c, const std::vector<double>& dgain) {
  Gradients<T> out;
  out.dgain.assign(dgain.begin(), dgain.end());
  for (std::int64_t row = 0; row < c.rows; ++row) {
    const T root = c.template root<T>(row);
    T along = 0;
    const auto each = [&](auto&& f) {
      for (std::int64_t j = 0; j < c.size; ++j) {
        const std::int64_t i = row * c.size + j;
        f(i, j, static_cast<T>(c.x.at(i)) / root, static_cast<T>(c.dy.at(i)) * c.template silu<T>(i));
      }
    };
    each([&](std::int64_t i, std::int64_t j, T h, T u) {
      along += u * c.template scale<T>(j) * h / static_cast<T>(c.size);
      out.dgain[static_cast<std::size_t>(j)] += u * h;
      const T g = static_cast<T>(c.gate.at(i)), s = sigmoid(g);
      out.dgate.push_back(static_cast<T>(c.dy.at(i)) * h * c.template scale<T>(j) * (s + g * s * (1 - s)));
    });
    each([&](std::int64_t, std::int64_t j, T h, T u) {
      out.dx.push_back((u * c.template scale<T>(j) - (c.normed ? h * along : T(0))) / root);
    });
  }
  return out;
}

TEST_P(GatedNormTest, IsAsExactAsAPlainLoop) {
  for (const auto& [rows, size] : shapes)
    for (const Case& c : cases(rows, size)) {
      Operand y = result({rows, size}), dx = result({rows, size}), dgate = result({rows, size});
      Operand dgain = normals({size}, exact(), 5);
      run(c.args(y), {&y});
      expect_as_exact_as_plain("y", y, [&](auto zero) { return plain<decltype(zero)>(c); });
      std::vector<Operand*> written = {&dx};
      if (c.normed) written.push_back(&dgain);
      if (c.gated) written.push_back(&dgate);
      run(c.backward(dx, dgain, dgate), written);
      const auto right = [&](auto zero) { return plain_backward<decltype(zero)>(c, dgain.values()); };
      expect_as_exact_as_plain("dx", dx, [&](auto zero) { return right(zero).dx; });
      if (c.normed) expect_as_exact_as_plain("dgain", dgain, [&](auto zero) { return right(zero).dgain; });
      if (c.gated) expect_as_exact_as_plain("dgate", dgate, [&](auto zero) { return right(zero).dgate; });
    }
}

TEST_P(GatedNormTest, GradientsEqualFiniteDifferences) {
  if (compute() != Dtype::f64) return;
  for (const Case& c : cases(6, 5)) {
    const Operand y = result({6, 5}), dx = result({6, 5}), dgate = result({6, 5}), dgain = filled({5}, exact(), 0);
    ops::run(ctx, c.backward(dx, dgain, dgate));
    const auto loss = [&] {
      ops::run(ctx, c.args(y));
      double total = 0;
      for (std::int64_t i = 0; i < 30; ++i) total += y->as<double>()[i] * c.dy.at(i);
      return total;
    };
    expect_gradient("x", c.x, dx, loss);
    if (c.normed) expect_gradient("gain", c.gain, dgain, loss);
    if (c.gated) expect_gradient("gate", c.gate, dgate, loss);
  }
}

TEST_P(GatedNormTest, TheGradientMayOverwriteThatOfTheResult) {
  for (const Case& c : cases(70, 64)) {
    Operand dx = result({70, 64}), dgate = result({70, 64}), dgain = filled({64}, exact(), 0),
            dy = normals({70, 64}, 2);
    ops::run(ctx, c.backward(dx, dgain, dgate));
    GatedNormBackwardArgs in_place = c.backward(dy, dgain, dgate);
    in_place.dy = dy;
    ops::run(ctx, in_place);
    EXPECT_EQ(dy.raw(), dx.raw());
  }
}

TEST_P(GatedNormTest, RefusesARowThatNothingChanges) {
  const Operand x = normals({4, 2}, 1), y = result({4, 2});
  EXPECT_THROW(ops::run(ctx, GatedNormArgs{x, y}), InternalError);
}

}  // namespace
}  // namespace longstride::testing::gated_norm_test
