#include "kernels/activation/activation.h"

#include "tests/ops/op_test.h"
#include "tests/support/finite_differences.h"

namespace longstride::testing {
namespace {

using kernels::Activation;
using kernels::ActivationArgs;
using kernels::ActivationBackwardArgs;
using kernels::inputs_of;

constexpr Activation activations[] = {Activation::sigmoid_gelu, Activation::relu, Activation::gelu, Activation::geglu};
constexpr std::pair<std::int64_t, std::int64_t> shapes[] = {{1, 1}, {3, 7}, {5, 64}, {131, 96}, {700, 130}};

template <class T>
T value_of(Activation activation, T x) {
  if (activation == Activation::relu) return std::max(x, T(0));
  if (activation == Activation::sigmoid_gelu) return x / (1 + std::exp(T(-1.702) * x));
  return x * std::erfc(-x / std::sqrt(T(2))) / 2;
}

template <class T>
T slope_of(Activation activation, T x) {
  if (activation == Activation::relu) return x > 0 ? T(1) : T(0);
  const T density = std::exp(-x * x / 2) / std::sqrt(T(8) * std::atan(T(1))), s = 1 / (1 + std::exp(T(-1.702) * x));
  if (activation == Activation::sigmoid_gelu) return s + T(1.702) * x * s * (1 - s);
  return std::erfc(-x / std::sqrt(T(2))) / 2 + x * density;
}

class ActivationTest : public OpTest {};
LONGSTRIDE_OP_TESTS(ActivationTest);

TEST_P(ActivationTest, IsAsExactAsAPlainLoop) {
  for (const Activation activation : activations)
    for (const auto& [rows, width] : shapes) {
      const std::int64_t inputs = inputs_of(activation), of_row = inputs * width;
      Operand x = normals({rows, of_row}, 1, 3), y = result({rows, width});
      run(ActivationArgs{activation, x, y}, {&y});
      expect_as_exact_as_plain("y", y, [&, n = rows, m = width](auto zero) {
        using T = decltype(zero);
        std::vector<T> out;
        for (std::int64_t r = 0; r < n; ++r)
          for (std::int64_t j = 0; j < m; ++j)
            out.push_back(value_of(activation, static_cast<T>(x.at(r * of_row + j))) *
                          (inputs == 2 ? static_cast<T>(x.at(r * of_row + m + j)) : T(1)));
        return out;
      });
    }
}

TEST_P(ActivationTest, GradientsAreAsExactAsAPlainLoop) {
  for (const Activation activation : activations)
    for (const auto& [rows, width] : shapes) {
      const std::int64_t inputs = inputs_of(activation), of_row = inputs * width;
      Operand x = normals({rows, of_row}, 1, 3), dy = normals({rows, width}, 2), dx = result({rows, of_row});
      run(ActivationBackwardArgs{activation, dy, x, dx}, {&dx});
      expect_as_exact_as_plain("dx", dx, [&, n = rows, m = width](auto zero) {
        using T = decltype(zero);
        std::vector<T> out(static_cast<std::size_t>(n * of_row));
        for (std::int64_t r = 0; r < n; ++r)
          for (std::int64_t j = 0; j < m; ++j) {
            const T a = static_cast<T>(x.at(r * of_row + j)), d = static_cast<T>(dy.at(r * m + j));
            const T gate = inputs == 2 ? static_cast<T>(x.at(r * of_row + m + j)) : T(1);
            out[static_cast<std::size_t>(r * of_row + j)] = d * gate * slope_of(activation, a);
            if (inputs == 2) out[static_cast<std::size_t>(r * of_row + m + j)] = d * value_of(activation, a);
          }
        return out;
      });
    }
}

TEST_P(ActivationTest, GradientsEqualFiniteDifferences) {
  if (compute() != Dtype::f64) return;
  for (const Activation activation : activations) {
    const Operand x = normals({3, 5 * inputs_of(activation)}, 1), dy = normals({3, 5}, 2), y = result({3, 5});
    const Operand dx = result({3, 5 * inputs_of(activation)});
    ops::run(ctx, ActivationBackwardArgs{activation, dy, x, dx});
    expect_gradient("x", x, dx, [&] {
      ops::run(ctx, ActivationArgs{activation, x, y});
      double total = 0;
      for (std::int64_t k = 0; k < y->count(); ++k) total += y->as<double>()[k] * dy.at(k);
      return total;
    });
  }
}

TEST_P(ActivationTest, AResultMayOverwriteItsArgumentUnlessTwoElementsMakeOne) {
  for (const Activation activation : {Activation::sigmoid_gelu, Activation::relu, Activation::gelu}) {
    Operand x = normals({9, 11}, 1), y = result({9, 11}), dy = normals({9, 11}, 2), dx = result({9, 11});
    run(ActivationBackwardArgs{activation, dy, x, dx}, {&dx});
    run(ActivationBackwardArgs{activation, dy, x, dy}, {&dy});
    EXPECT_EQ(dy.raw(), dx.raw());
    run(ActivationArgs{activation, x, y}, {&y});
    run(ActivationArgs{activation, x, x}, {&x});
    EXPECT_EQ(x.raw(), y.raw());
  }
  const Operand x = normals({9, 22}, 1), same = normals({9, 22}, 1);
  EXPECT_THROW(ops::run(ctx, ActivationArgs{Activation::geglu, x, x}), InternalError);
  EXPECT_THROW(ops::run(ctx, ActivationArgs{Activation::geglu, x, same}), InternalError);
}

}  // namespace
}  // namespace longstride::testing
