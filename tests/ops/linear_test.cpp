#include "framework/ops/linear.h"

#include "framework/core/errors.h"
#include "tests/gradients/finite_differences.h"
#include "tests/ops/reference.h"

namespace longstride {
namespace {

using testing::dot;
using testing::normals;
using testing::OwnedTensor;
using testing::TestContext;
using testing::zeros;

struct Case {
  std::int64_t rows, in, out;
};

class LinearTest : public ::testing::TestWithParam<Case> {};

INSTANTIATE_TEST_SUITE_P(Sizes, LinearTest,
                         ::testing::Values(Case{1, 1, 1}, Case{1, 17, 5}, Case{5, 1, 3}, Case{7, 17, 1},
                                           Case{17, 33, 65}, Case{3, 513, 17}, Case{513, 17, 34}, Case{600, 96, 513},
                                           Case{1, 300, 1030}));

TEST_P(LinearTest, ForwardIsAsExactAsAPlainLoop) {
  const auto [rows, in, out] = GetParam();
  TestContext ctx;
  const auto run = [&](Dtype dtype) {
    OwnedTensor y({rows, out}, dtype);
    ops::linear(ctx, normals({rows, in}, dtype, 1), normals({out, in}, dtype, 2), normals({out}, dtype, 3), y);
    return y;
  };
  const OwnedTensor x = normals({rows, in}, Dtype::f64, 1), w = normals({out, in}, Dtype::f64, 2),
                    b = normals({out}, Dtype::f64, 3);
  const OwnedTensor exact = testing::plain_linear<double>(x, w, &b);
  EXPECT_LT(testing::difference(run(Dtype::f64), exact).error, 1e-12);
  testing::expect_as_exact_as_plain("y", run(Dtype::f32), testing::plain_linear<float>(x, w, &b), exact);
}

TEST_P(LinearTest, BackwardIsAsExactAsAPlainLoop) {
  const auto [rows, in, out] = GetParam();
  TestContext ctx;
  const OwnedTensor x = normals({rows, in}, Dtype::f64, 1), w = normals({out, in}, Dtype::f64, 2),
                    dy = normals({rows, out}, Dtype::f64, 4);
  OwnedTensor wt({in, out}, Dtype::f64), ones({rows, 1}, Dtype::f64);
  for (std::int64_t i = 0; i < in * out; ++i) wt.set(i, w.at(i % out * in + i / out));
  for (std::int64_t r = 0; r < rows; ++r) ones.set(r, 1);

  OwnedTensor dx({rows, in}, Dtype::f32), dw({out, in}, Dtype::f32), db({out}, Dtype::f32);
  const OwnedTensor dy32 = normals({rows, out}, Dtype::f32, 4);
  ops::linear_backward_input(ctx, dy32, normals({out, in}, Dtype::f32, 2), dx);
  ops::linear_backward_weight(ctx, dy32, normals({rows, in}, Dtype::f32, 1), dw, db);
  testing::expect_as_exact_as_plain("dx", dx, testing::plain_linear<float>(dy, wt, nullptr),
                                    testing::plain_linear<double>(dy, wt, nullptr));
  testing::expect_as_exact_as_plain("dw", dw, testing::plain_transposed_product<float>(dy, x),
                                    testing::plain_transposed_product<double>(dy, x));
  testing::expect_as_exact_as_plain("db", db, testing::plain_transposed_product<float>(dy, ones),
                                    testing::plain_transposed_product<double>(dy, ones));
}

TEST(Linear, GradientsAreThoseOfFiniteDifferences) {
  TestContext ctx;
  const Dtype d = Dtype::f64;
  const OwnedTensor x = normals({9, 7}, d, 1), w = normals({5, 7}, d, 2), b = normals({5}, d, 3),
                    dy = normals({9, 5}, d, 4);
  const auto loss = [&] {
    OwnedTensor y({9, 5}, d);
    ops::linear(ctx, x, w, b, y);
    return dot(y, dy);
  };
  OwnedTensor dx({9, 7}, d), dw({5, 7}, d), db({5}, d);
  ops::linear_backward_input(ctx, dy, w, dx);
  ops::linear_backward_weight(ctx, dy, x, dw, db);
  testing::expect_gradient("dx", x, dx, loss);
  testing::expect_gradient("dw", w, dw, loss);
  testing::expect_gradient("db", b, db, loss);
}

// Through y = gelu(x W1^T + b1) W2^T.
TEST(Linear, FusedGeluGradientsAreThoseOfFiniteDifferences) {
  TestContext ctx;
  const Dtype d = Dtype::f64;
  const OwnedTensor x = normals({6, 3}, d, 1), w1 = normals({8, 3}, d, 2), b1 = normals({8}, d, 3),
                    w2 = normals({4, 8}, d, 4), dy = normals({6, 4}, d, 5);
  OwnedTensor pre({6, 8}, d), inner({6, 8}, d), y({6, 4}, d);
  const auto loss = [&] {
    ops::linear_gelu(ctx, x, w1, b1, pre, inner);
    ops::linear(ctx, inner, w2, {}, y);
    return dot(y, dy);
  };
  loss();
  OwnedTensor dpre({6, 8}, d), dx({6, 3}, d), dw1({8, 3}, d), db1({8}, d);
  ops::linear_backward_input_gelu(ctx, dy, w2, pre, dpre, db1);
  ops::linear_backward_input(ctx, dpre, w1, dx);
  ops::linear_backward_weight(ctx, dpre, x, dw1, {});
  testing::expect_gradient("dx", x, dx, loss);
  testing::expect_gradient("dw1", w1, dw1, loss);
  testing::expect_gradient("db1", b1, db1, loss);
}

TEST(Linear, FusedFormsEqualTheSeparateOnes) {
  TestContext ctx;
  for (const Dtype d : {Dtype::f32, Dtype::f64}) {
    const OwnedTensor x = normals({600, 40}, d, 1), w = normals({70, 40}, d, 2), b = normals({70}, d, 3),
                      dy = normals({600, 70}, d, 4), pre_x = normals({600, 40}, d, 5);
    OwnedTensor pre({600, 70}, d), pre_fused({600, 70}, d), y({600, 70}, d), y_fused({600, 70}, d);
    ops::linear(ctx, x, w, b, pre);
    ops::gelu(ctx, pre, y);
    ops::linear_gelu(ctx, x, w, b, pre_fused, y_fused);
    EXPECT_EQ(pre, pre_fused);
    EXPECT_EQ(y, y_fused);
    ops::linear_gelu(ctx, x, w, b, y_fused, y_fused);  // nothing saved
    EXPECT_EQ(y, y_fused);
    OwnedTensor dx({600, 40}, d), dx_fused({600, 40}, d);
    ops::linear_backward_input(ctx, dy, w, dx);
    ops::gelu_backward(ctx, dx, pre_x, dx);
    OwnedTensor dw({40, 40}, d), dbias = normals({40}, d, 6), dbias_fused = dbias;
    ops::linear_backward_weight(ctx, dx, pre_x, dw, dbias);
    ops::linear_backward_input_gelu(ctx, dy, w, pre_x, dx_fused, dbias_fused);
    EXPECT_EQ(dx, dx_fused);
    EXPECT_EQ(dbias, dbias_fused);
  }
}

TEST(Linear, ParameterGradientsAccumulateAndInputGradientsOverwrite) {
  TestContext ctx;
  const Dtype d = Dtype::f64;
  const OwnedTensor x = normals({9, 7}, d, 1), w = normals({5, 7}, d, 2), dy = normals({9, 5}, d, 4);
  OwnedTensor dw = zeros({5, 7}, d), db = zeros({5}, d), once_dw = zeros({5, 7}, d), once_db = zeros({5}, d);
  OwnedTensor dx = normals({9, 7}, d, 6), fresh_dx = zeros({9, 7}, d);
  ops::linear_backward_weight(ctx, dy, x, once_dw, once_db);
  ops::linear_backward_weight(ctx, dy, x, dw, db);
  ops::linear_backward_weight(ctx, dy, x, dw, db);
  for (std::int64_t i = 0; i < 35; ++i) EXPECT_NEAR(dw.at(i), 2 * once_dw.at(i), 1e-13);
  for (std::int64_t i = 0; i < 5; ++i) EXPECT_NEAR(db.at(i), 2 * once_db.at(i), 1e-13);
  ops::linear_backward_input(ctx, dy, w, dx);
  ops::linear_backward_input(ctx, dy, w, fresh_dx);
  EXPECT_EQ(dx, fresh_dx);
}

// A slice of the last dimension of a wider tensor, such as q in a fused (q, k, v), is read and written in place.
TEST(Linear, RowsMayBeStrided) {
  TestContext ctx;
  const Dtype d = Dtype::f32;
  const OwnedTensor wide = normals({2, 9, 20}, d, 1), w = normals({5, 7}, d, 2), b = normals({5}, d, 3);
  OwnedTensor out = zeros({2, 9, 12}, d), x({18, 7}, d), y({18, 5}, d);
  for (std::int64_t r = 0; r < 18; ++r)
    for (std::int64_t j = 0; j < 7; ++j) x.set(r * 7 + j, wide.at(r * 20 + 11 + j));
  ops::linear(ctx, wide->slice(2, 11, 18), w, b, out->slice(2, 4, 9));
  ops::linear(ctx, x, w, b, y);
  for (std::int64_t r = 0; r < 18; ++r)
    for (std::int64_t j = 0; j < 12; ++j)
      EXPECT_EQ(out.at(r * 12 + j), j >= 4 && j < 9 ? y.at(r * 5 + j - 4) : 0.0) << r << " " << j;
}

TEST(Linear, ShapesThatDoNotMatchAreRefused) {
  TestContext ctx;
  const OwnedTensor x = zeros({9, 7}, Dtype::f32), w = zeros({5, 8}, Dtype::f32), y = zeros({9, 5}, Dtype::f32);
  EXPECT_THROW(ops::linear(ctx, x, w, {}, y), InternalError);
  EXPECT_THROW(ops::linear(ctx, x, zeros({5, 7}, Dtype::f64), {}, y), InternalError);
  EXPECT_THROW(ops::linear(ctx, x, zeros({5, 7}, Dtype::f32), zeros({4}, Dtype::f32), y), InternalError);
  EXPECT_THROW(ops::linear(ctx, x->slice(1, 0, 7).split_last(7, 1), w, {}, y), InternalError);
}

}  // namespace
}  // namespace longstride
