#include "framework/ops/linear.h"

#include "framework/ops/run.h"
#include "kernels/activation/activation.h"
#include "kernels/gemm/gemm.h"
#include "tests/ops/op_test.h"
#include "tests/support/finite_differences.h"

namespace longstride::testing::linear_test {
namespace {

using kernels::Epilogue;
using kernels::GemmArgs;

struct Case {
  std::int64_t rows, columns, depth;
  bool a_transposed = false, b_transposed = false;
  std::int64_t padding = 0;  // extra columns in each stored row
  double deviation = 1;      // deviation of the bias, and in backward of gelu's input
};

const Case cases[] = {{1, 1, 1},
                      {1, 5, 17},
                      {5, 3, 1},
                      {128, 256, 512, true, false},
                      {128, 256, 512, false, true},
                      {128, 256, 512, true, true},
                      {64, 96, 200, false, true, 8},
                      {64, 96, 200, true, false, 8},
                      {37, 53, 71},
                      {37, 53, 71, false, true, 3},
                      {37, 53, 71, true, false, 3},
                      {1, 256, 64, false, true},
                      {1, 1030, 300, false, true},
                      {300, 1, 40, false, true},
                      {513, 34, 17, false, true},
                      {33, 17, 1, true, false},
                      {128, 256, 64, false, true, 0, 30}};

std::string text(const Case& c, Epilogue epilogue) {
  return std::to_string(c.rows) + " x " + std::to_string(c.columns) + " x " + std::to_string(c.depth) +
         (c.a_transposed ? " a^T" : "") + (c.b_transposed ? " b^T" : "") + " pad " + std::to_string(c.padding) +
         ", epilogue " + std::to_string(static_cast<int>(epilogue));
}

template <class T>
T gelu(T z) {
  return z / (T(1) + std::exp(T(-1.702) * z));
}
template <class T>
T gelu_slope(T z) {
  const T s = T(1) / (T(1) + std::exp(T(-1.702) * z));
  return s + T(1.702) * z * s * (T(1) - s);
}

// The matrices of one product, and how they are stored.
struct Product {
  Case c;
  Operand a, b, bias, result, activated;

  Tensor matrix(const Operand& stored, std::int64_t columns, bool transposed) const {
    const Tensor m = stored->slice(1, 0, columns);
    return transposed ? m.transposed() : m;
  }
  GemmArgs args() const {
    return {.a = matrix(a, c.a_transposed ? c.rows : c.depth, c.a_transposed),
            .b = matrix(b, c.b_transposed ? c.depth : c.columns, c.b_transposed),
            .c = result};
  }
  // a b, plus the content of `result` when accumulating.
  template <class T>
  std::vector<T> plain(bool accumulate) const {
    std::vector<T> left, right, out;
    for (std::int64_t i = 0; i < c.rows * c.depth; ++i) {
      const std::int64_t r = i / c.depth, k = i % c.depth, stride = a->size(1);
      left.push_back(static_cast<T>(a.at(c.a_transposed ? k * stride + r : r * stride + k)));
    }
    for (std::int64_t i = 0; i < c.columns * c.depth; ++i) {
      const std::int64_t j = i / c.depth, k = i % c.depth, stride = b->size(1);
      right.push_back(static_cast<T>(b.at(c.b_transposed ? j * stride + k : k * stride + j)));
    }
    for (std::int64_t i = 0; i < c.rows * c.columns; ++i) {
      const T *x = left.data() + i / c.columns * c.depth, *y = right.data() + i % c.columns * c.depth;
      T sum = 0;
      for (std::int64_t k = 0; k < c.depth; ++k) sum += x[k] * y[k];
      out.push_back(accumulate ? static_cast<T>(result.at(i)) + sum : sum);
    }
    return out;
  }
};

class LinearTest : public OpTest {
 protected:
  Product product(const Case& c, Dtype out, bool accumulate = false) {
    const Shape shape{c.rows, c.columns};
    const double unit = 1 / std::sqrt(static_cast<double>(c.depth));
    return {c,
            normals({c.a_transposed ? c.depth : c.rows, (c.a_transposed ? c.rows : c.depth) + c.padding}, 1),
            normals({c.b_transposed ? c.columns : c.depth, (c.b_transposed ? c.depth : c.columns) + c.padding},
                    compute(), 2, unit),
            normals({c.columns}, out, 3, c.deviation),
            accumulate ? normals(shape, out, 4) : result(shape, out),
            normals(shape, out, 5, c.deviation)};
  }
  void expect_product(const Case& c, Dtype out, bool accumulate) {
    Product p = product(c, out, accumulate);
    GemmArgs args = p.args();
    args.accumulate = accumulate;
    run(args, {&p.result});
    expect_as_exact_as_plain(text(c, Epilogue::none), p.result,
                             [&](auto zero) { return p.plain<decltype(zero)>(accumulate); });
  }
  // `sums` had its values before the sums over the rows of `result` were added.
  void expect_column_sums(const std::string& what, const Operand& sums, const Operand& result) {
    const std::vector<double> stored = result.found();
    expect_as_exact_as_plain(what, sums, [&](auto zero) {
      std::vector<decltype(zero)> out(sums.values().begin(), sums.values().end());
      for (std::size_t i = 0; i < stored.size(); ++i) out[i % out.size()] += static_cast<decltype(zero)>(stored[i]);
      return out;
    });
  }
};
LONGSTRIDE_OP_TESTS(LinearTest);

TEST_P(LinearTest, ProductsAreAsExactAsAPlainLoop) {
  for (const Case& c : cases) {
    expect_product(c, compute(), false);
    if (compute() != exact()) expect_product(c, exact(), false);
    expect_product(c, exact(), true);
  }
  expect_product({48, 64, 20000, true, false}, exact(), true);  // weight gradients sum over all positions
}

TEST_P(LinearTest, EpiloguesAreAsExactAsAPlainLoop) {
  for (const Case& c : cases)
    for (const Epilogue epilogue : {Epilogue::bias, Epilogue::bias_gelu}) {
      Product p = product(c, compute());
      GemmArgs args = p.args();
      args.bias = p.bias;
      args.activated = epilogue == Epilogue::bias_gelu ? p.activated : Tensor();
      args.epilogue = epilogue;
      run(args, {&p.result, &p.activated});
      const auto plain = [&](auto zero, bool activates) {
        auto out = p.plain<decltype(zero)>(false);
        for (std::size_t i = 0; i < out.size(); ++i) {
          out[i] += static_cast<decltype(zero)>(p.bias.values()[i % p.bias.values().size()]);
          if (activates) out[i] = gelu(out[i]);
        }
        return out;
      };
      expect_as_exact_as_plain("c " + text(c, epilogue), p.result, [&](auto zero) { return plain(zero, false); });
      if (epilogue == Epilogue::bias) continue;
      expect_as_exact_as_plain("gelu " + text(c, epilogue), p.activated, [&](auto zero) { return plain(zero, true); });
      const auto separate = p.activated.raw();
      args.activated = args.c;  // nothing saved for backward
      run(args, {&p.result});
      EXPECT_EQ(p.result.raw(), separate) << text(c, epilogue);
    }
}

TEST_P(LinearTest, SumsWithAnAddendAreAsExactAsAPlainLoop) {
  for (const Case& c : cases)
    for (const Epilogue epilogue : {Epilogue::none, Epilogue::bias}) {
      Product p = product(c, compute());
      GemmArgs args = p.args();
      args.addend = p.activated;
      args.bias = epilogue == Epilogue::bias ? p.bias : Tensor();
      args.epilogue = epilogue;
      run(args, {&p.result});
      expect_as_exact_as_plain(text(c, epilogue), p.result, [&](auto zero) {
        using T = decltype(zero);
        std::vector<T> out = p.plain<T>(false);
        for (std::size_t i = 0; i < out.size(); ++i) {
          out[i] += static_cast<T>(p.activated.at(static_cast<std::int64_t>(i)));
          if (epilogue == Epilogue::bias) out[i] += static_cast<T>(p.bias.values()[i % p.bias.values().size()]);
        }
        return out;
      });
      args.addend = args.c;
      EXPECT_THROW(ops::run(ctx, args), InternalError);
    }
}

TEST_P(LinearTest, ReluAndItsGradientsAreAsExactAsAPlainLoop) {
  for (const Case& c : cases) {
    Product p = product(c, compute());
    GemmArgs args = p.args();
    args.bias = p.bias;
    args.epilogue = Epilogue::bias_relu;
    run(args, {&p.result});
    expect_as_exact_as_plain(text(c, args.epilogue), p.result, [&](auto zero) {
      auto out = p.plain<decltype(zero)>(false);
      for (std::size_t i = 0; i < out.size(); ++i) {
        out[i] += static_cast<decltype(zero)>(p.bias.values()[i % p.bias.values().size()]);
        out[i] = std::max(out[i], zero);
      }
      return out;
    });
    for (const double y : p.result.found()) ASSERT_GE(y, 0);

    Operand sums = normals({c.columns}, exact(), 6);
    args.bias = {};
    args.activated = p.activated;
    args.column_sums = sums;
    args.epilogue = Epilogue::relu_backward;
    run(args, {&p.result, &sums});
    expect_as_exact_as_plain(text(c, args.epilogue), p.result, [&](auto zero) {
      auto out = p.plain<decltype(zero)>(false);
      for (std::size_t i = 0; i < out.size(); ++i) out[i] = p.activated.values()[i] > 0 ? out[i] : zero;
      return out;
    });
    expect_column_sums("sums " + text(c, args.epilogue), sums, p.result);
  }
}

TEST_P(LinearTest, GradientsThroughGeluAreAsExactAsAPlainLoop) {
  for (const Case& c : cases) {
    Product p = product(c, compute());
    Operand sums = normals({c.columns}, exact(), 6);
    GemmArgs args = p.args();
    args.activated = p.activated;
    args.column_sums = sums;
    args.epilogue = Epilogue::gelu_backward;
    run(args, {&p.result, &sums});
    expect_as_exact_as_plain(text(c, args.epilogue), p.result, [&](auto zero) {
      auto out = p.plain<decltype(zero)>(false);
      for (std::size_t i = 0; i < out.size(); ++i)
        out[i] *= gelu_slope(static_cast<decltype(zero)>(p.activated.values()[i]));
      return out;
    });
    expect_column_sums("sums " + text(c, args.epilogue), sums, p.result);
  }
}

// Independent products of several matrices of one shape, including matrices that begin at an odd element.
TEST_P(LinearTest, StacksOfMatricesAreAsExactAsAPlainLoop) {
  for (const Case& c : {Case{128, 256, 192}, Case{37, 53, 71}, Case{1, 9, 5}})
    for (const bool a_turns : {false, true})
      for (const bool b_turns : {false, true}) {
        constexpr std::int64_t matrices = 3;
        const Operand a = normals({matrices, a_turns ? c.depth : c.rows, a_turns ? c.rows : c.depth}, 1);
        const Operand b =
            normals({matrices, b_turns ? c.columns : c.depth, b_turns ? c.depth : c.columns}, compute(), 2, 0.1);
        Operand y = result({matrices, c.rows, c.columns});
        const auto turned = [](const Tensor& t, bool turns) { return turns ? t.transposed() : t; };
        run(GemmArgs{.a = turned(a, a_turns), .b = turned(b, b_turns), .c = y}, {&y});
        expect_as_exact_as_plain(text(c, Epilogue::none), y, [&](auto zero) {
          using T = decltype(zero);
          std::vector<T> out;
          for (std::int64_t i = 0; i < matrices * c.rows * c.columns; ++i) {
            const std::int64_t m = i / (c.rows * c.columns), r = i / c.columns % c.rows, j = i % c.columns;
            T sum = 0;
            for (std::int64_t k = 0; k < c.depth; ++k)
              sum += static_cast<T>(a.at(m * c.rows * c.depth + (a_turns ? k * c.rows + r : r * c.depth + k))) *
                     static_cast<T>(b.at(m * c.columns * c.depth + (b_turns ? j * c.depth + k : k * c.columns + j)));
            out.push_back(sum);
          }
          return out;
        });
      }
}

TEST_P(LinearTest, GradientsEqualFiniteDifferences) {
  if (compute() != Dtype::f64) return;
  const Operand x = normals({6, 3}, 1), w1 = normals({8, 3}, 2), b1 = normals({8}, 3), w2 = normals({4, 8}, 4);
  const Operand b2 = normals({4}, 5), dy = normals({6, 4}, 6), pre = result({6, 8}), inner = result({6, 8}),
                y = result({6, 4});
  const auto loss = [&] {  // through y = gelu(x W1^T + b1) W2^T + b2
    ops::linear_gelu(ctx, x, w1, b1, pre, inner);
    ops::linear(ctx, inner, w2, b2, y);
    double total = 0;
    for (std::int64_t i = 0; i < y->count(); ++i) total += y->as<double>()[i] * dy.at(i);
    return total;
  };
  loss();
  const auto zeros = [&](const Shape& shape) { return filled(shape, exact(), 0); };
  const Operand dpre = result({6, 8}), dx = result({6, 3}), dw1 = zeros({8, 3}), db1 = zeros({8});
  const Operand dw2 = zeros({4, 8}), db2 = zeros({4});
  ops::linear_backward_weight(ctx, dy, inner, dw2, db2);
  ops::linear_backward_input_gelu(ctx, dy, w2, pre, dpre, db1);
  ops::linear_backward_input(ctx, dpre, w1, dx);
  ops::linear_backward_weight(ctx, dpre, x, dw1, {});
  expect_gradient("dx", x, dx, loss);
  expect_gradient("dw1", w1, dw1, loss);
  expect_gradient("db1", b1, db1, loss);
  expect_gradient("dw2", w2, dw2, loss);
  expect_gradient("db2", b2, db2, loss);
}

TEST_P(LinearTest, ParameterGradientsAccumulateAndInputGradientsOverwrite) {
  const Operand x = normals({9, 7}, 1), w = normals({5, 7}, 2), dy = normals({9, 5}, 4);
  const Operand dw = filled({5, 7}, exact(), 0), db = filled({5}, exact(), 0);
  ops::linear_backward_weight(ctx, dy, x, dw, db);
  const std::vector<double> once = dw.found(), once_db = db.found();
  ops::linear_backward_weight(ctx, dy, x, dw, db);
  const double tolerance = 64 * half_step_of(exact());
  const std::vector<double> twice = dw.found(), twice_db = db.found();
  for (std::size_t i = 0; i < once.size(); ++i) EXPECT_NEAR(twice[i], 2 * once[i], tolerance);
  for (std::size_t i = 0; i < once_db.size(); ++i) EXPECT_NEAR(twice_db[i], 2 * once_db[i], tolerance);
  const Operand dx = normals({9, 7}, 6), fresh = result({9, 7});
  ops::linear_backward_input(ctx, dy, w, dx);
  ops::linear_backward_input(ctx, dy, w, fresh);
  EXPECT_EQ(dx.raw(), fresh.raw());
}

// On the CPU the separate passes give the same bits as the fused form; Hopper's fused kernel has its own test.
TEST_P(LinearTest, FusedFormsEqualTheSeparateOnes) {
  if (device() == Device::cuda) return;
  const Operand x = normals({600, 40}, 1), w = normals({70, 40}, 2), b = normals({70}, 3), dy = normals({600, 70}, 4);
  const Operand pre_x = normals({600, 40}, 5), pre = result({600, 70}), fused = result({600, 70}),
                y = result({600, 70});
  ops::linear(ctx, x, w, b, pre);
  ops::linear_gelu(ctx, x, w, b, fused, y);
  EXPECT_EQ(pre.raw(), fused.raw());
  const Operand dpre = result({600, 40}), dw = filled({40, 40}, exact(), 0);
  const Operand dbias = normals({40}, exact(), 6), dbias_fused = normals({40}, exact(), 6);
  ops::linear_backward_input_gelu(ctx, dy, w, pre_x, dpre, dbias_fused);
  ops::linear_backward_weight(ctx, dpre, pre_x, dw, dbias);
  EXPECT_EQ(dbias.raw(), dbias_fused.raw());

  const Operand active = result({600, 70}), separate = result({600, 70}), dactive = result({600, 40});
  ops::linear_relu(ctx, x, w, b, active);
  ops::run(ctx, kernels::ActivationArgs{kernels::Activation::relu, pre, separate});
  EXPECT_EQ(active.raw(), separate.raw());
  ops::linear_backward_input_relu(ctx, dy, w, pre_x, dpre);
  ops::linear_backward_input(ctx, dy, w, dactive);
  ops::run(ctx, kernels::ActivationBackwardArgs{kernels::Activation::relu, dactive, pre_x, dactive});
  EXPECT_EQ(dpre.found(), dactive.found());
}

// A slice of the last dimension of a wider tensor, such as q in a fused (q, k, v), is read and written in place.
TEST_P(LinearTest, RowsMayBeStrided) {
  const Operand wide = normals({2, 9, 20}, 1), w = normals({5, 7}, 2), b = normals({5}, 3);
  std::vector<double> rows;
  for (std::int64_t r = 0; r < 18; ++r)
    for (std::int64_t j = 0; j < 7; ++j) rows.push_back(wide.at(r * 20 + 11 + j));
  const Operand x = with_values({18, 7}, compute(), rows), y = result({18, 5}), out = filled({2, 9, 12}, compute(), 0);
  ops::linear(ctx, wide->slice(2, 11, 18), w, b, out->slice(2, 4, 9));
  ops::linear(ctx, x, w, b, y);
  const std::vector<double> found = out.found(), dense = y.found();
  for (std::int64_t r = 0; r < 18; ++r)
    for (std::int64_t j = 0; j < 12; ++j) {
      const double expected = j >= 4 && j < 9 ? dense[static_cast<std::size_t>(r * 5 + j - 4)] : 0;
      EXPECT_NEAR(found[static_cast<std::size_t>(r * 12 + j)], expected,
                  device() == Device::cpu ? 0 : 16 * half_step_of(compute()) * (1 + std::abs(expected)))
          << r << " " << j;
    }
}

TEST_P(LinearTest, RefusesShapesThatDoNotMatch) {
  const Operand x = normals({9, 7}, 1), w = normals({5, 8}, 2), fits = normals({5, 7}, 2), y = result({9, 5});
  const Operand other = filled({5, 7}, Dtype::i64, 2), short_bias = normals({4}, 3), pre = normals({9, 7}, 3);
  EXPECT_THROW(ops::linear(ctx, x, w, {}, y), InternalError);
  EXPECT_THROW(ops::linear(ctx, x, other, {}, y), InternalError);
  EXPECT_THROW(ops::linear(ctx, x, fits, short_bias, y), InternalError);
  EXPECT_THROW(ops::linear(ctx, x->split_last(7, 1), w, {}, y), InternalError);
  EXPECT_THROW(ops::linear_backward_input_gelu(ctx, y, fits, pre, pre), InternalError);
  EXPECT_THROW(ops::linear_backward_input_relu(ctx, y, fits, pre, pre), InternalError);
  EXPECT_THROW(ops::linear_relu(ctx, x, fits, {}, y), InternalError);
  EXPECT_THROW(ops::linear(ctx, x, fits, {}, y, x), InternalError);
  EXPECT_NO_THROW(ops::linear(ctx, x, fits, {}, y));
}

}  // namespace
}  // namespace longstride::testing::linear_test
