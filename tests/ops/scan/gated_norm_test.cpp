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
    bool normed, gated, gate_first;
    std::int64_t rows, size, sets;
    Operand x, dy, gain, gate;

    Tensor gain_of() const { return normed ? Tensor(gain) : Tensor{}; }
    Tensor gate_of() const { return gated ? Tensor(gate) : Tensor{}; }
    GatedNormArgs args(const Operand& y) const { return {x, y, gain_of(), gate_of(), gate_first}; }
    GatedNormBackwardArgs backward(const Operand& dx, const Operand& dgain, const Operand& dgate) const {
      return {.dy = dy,
              .x = x,
              .dx = dx,
              .gain = gain_of(),
              .gate = gate_of(),
              .dgain = normed ? Tensor(dgain) : Tensor{},
              .dgate = gated ? Tensor(dgate) : Tensor{},
              .gate_first = gate_first};
    }
    // An element that is normalised.
    template <class T>
    T input(std::int64_t i) const {
      return static_cast<T>(x.at(i)) * (gate_first ? silu<T>(i) : T(1));
    }
    // The factor behind it, but for the gain.
    template <class T>
    T factor(std::int64_t i) const {
      return gate_first ? T(1) : silu<T>(i);
    }
    std::int64_t gain_at(std::int64_t i) const { return i % (sets * size); }
    template <class T>
    T root(std::int64_t row) const {
      T squares = 0;
      for (std::int64_t j = 0; j < size; ++j) squares += input<T>(row * size + j) * input<T>(row * size + j);
      return normed ? std::sqrt(squares / static_cast<T>(size) + T(1e-6)) : T(1);
    }
    template <class T>
    T scale(std::int64_t i) const {
      return normed ? static_cast<T>(gain.at(gain_at(i))) : T(1);
    }
    template <class T>
    T silu(std::int64_t i) const {
      return gated ? static_cast<T>(gate.at(i)) * sigmoid(static_cast<T>(gate.at(i))) : T(1);
    }
  };

  std::vector<Case> cases(std::int64_t rows, std::int64_t size) {
    std::vector<Case> out;
    const auto add = [&](bool normed, bool gated, bool gate_first, std::int64_t sets) {
      out.push_back({normed, gated, gate_first, rows, size, sets, normals({rows, size}, 1, 2), normals({rows, size}, 2),
                     normals({sets, size}, exact(), 3), normals({rows, size}, 4, 2)});
    };
    add(true, true, false, 1), add(true, false, false, 1), add(false, true, false, 1), add(true, true, true, 1);
    if (rows % 2 == 0) add(true, true, true, 2), add(true, true, false, 2);
    return out;
  }
};
LONGSTRIDE_OP_TESTS(GatedNormTest);

template <class T, class Case>
std::vector<T> plain(const Case& c) {
  std::vector<T> out;
  for (std::int64_t i = 0; i < c.rows * c.size; ++i)
    out.push_back(c.template input<T>(i) / c.template root<T>(i / c.size) * c.template scale<T>(i) *
                  c.template factor<T>(i));
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
        f(i, c.template input<T>(i) / root, static_cast<T>(c.dy.at(i)) * c.template factor<T>(i));
      }
    };
    each([&](std::int64_t i, T h, T u) {
      along += u * c.template scale<T>(i) * h / static_cast<T>(c.size);
      out.dgain[static_cast<std::size_t>(c.gain_at(i))] += u * h;
    });
    each([&](std::int64_t i, T h, T u) {
      const T d = (u * c.template scale<T>(i) - (c.normed ? h * along : T(0))) / root;
      const T g = static_cast<T>(c.gate.at(i)), s = sigmoid(g), slope = s + g * s * (1 - s);
      out.dgate.push_back(
          (c.gate_first ? d * static_cast<T>(c.x.at(i)) : static_cast<T>(c.dy.at(i)) * h * c.template scale<T>(i)) *
          slope);
      out.dx.push_back(c.gate_first ? d * g * s : d);
    });
  }
  return out;
}

TEST_P(GatedNormTest, IsAsExactAsAPlainLoop) {
  for (const auto& [rows, size] : shapes)
    for (const Case& c : cases(rows, size)) {
      Operand y = result({rows, size}), dx = result({rows, size}), dgate = result({rows, size});
      Operand dgain = normals({c.sets, size}, exact(), 5);
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
    const Operand y = result({6, 5}), dx = result({6, 5}), dgate = result({6, 5}),
                  dgain = filled({c.sets, 5}, exact(), 0);
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
    Operand dx = result({70, 64}), dgate = result({70, 64}), dgain = filled({c.sets, 64}, exact(), 0),
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
