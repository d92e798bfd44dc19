#include "framework/ops/basic.h"

#include <omp.h>

#include <vector>

#include "framework/core/errors.h"
#include "framework/ops/cross_entropy.h"
#include "framework/ops/embedding.h"
#include "framework/ops/linear.h"
#include "framework/ops/normalise.h"
#include "tests/ops/reference.h"

namespace longstride {
namespace {

using testing::normals;
using testing::OwnedTensor;
using testing::TestContext;
using testing::zeros;

TEST(Basic, FillsCopiesAndAdds) {
  TestContext ctx;
  for (const Dtype d : {Dtype::f32, Dtype::f64})
    for (const std::int64_t n : {1, 17, 513, 40000}) {
      const OwnedTensor a = normals({n}, d, 1), b = normals({n}, d, 2);
      OwnedTensor y({n}, d);
      ops::add(ctx, a, b, y);
      for (std::int64_t i = 0; i < n; ++i) ASSERT_NEAR(y.at(i), a.at(i) + b.at(i), 1e-6);
      OwnedTensor in_place = a;
      ops::add(ctx, in_place, b, in_place);
      EXPECT_EQ(in_place, y);
      ops::copy(ctx, a, y);
      EXPECT_EQ(y, a);
      ops::fill_zero(ctx, y);
      EXPECT_EQ(y, zeros({n}, d));
    }
}

// Five million small losses: in fp32 a running sum would lose them.
TEST(Basic, SumsInDouble) {
  TestContext ctx;
  const std::int64_t n = 5000003;
  OwnedTensor x({n}, Dtype::f32), total({1}, Dtype::f64);
  for (std::int64_t i = 0; i < n; ++i) x->as<float>()[i] = 0.1f;
  total.set(0, 7);
  ops::sum(ctx, x, total);
  EXPECT_NEAR(total.at(0), 7 + static_cast<double>(n) * double{0.1f}, 1e-6);
  total.set(0, 0);
  ops::sum_of_squares(ctx, x, total);
  EXPECT_NEAR(total.at(0), static_cast<double>(n) * double{0.1f} * double{0.1f}, 1e-7);
}

TEST(Basic, RefusesOtherShapesAndTypes) {
  TestContext ctx;
  const OwnedTensor a = zeros({4}, Dtype::f32), b = zeros({5}, Dtype::f32), c = zeros({4}, Dtype::f64);
  EXPECT_THROW(ops::add(ctx, a, b, a), InternalError);
  EXPECT_THROW(ops::copy(ctx, a, c), InternalError);
  EXPECT_THROW(ops::sum(ctx, a, zeros({1}, Dtype::f32)), InternalError);
  EXPECT_THROW(ops::fill_zero(ctx, zeros({4, 4}, Dtype::f32)->slice(1, 0, 2)), InternalError);
}

// Every op once, forward and backward, on shapes that are cut into several blocks and chunks; returns what they wrote.
std::vector<OwnedTensor> run_everything(Context& ctx, Dtype d) {
  constexpr std::int64_t batch = 2, seq = 700, rows = batch * seq, width = 130, inner = 260;
  const OwnedTensor x = normals({batch, seq, width}, d, 1), w = normals({inner, width}, d, 2),
                    b = normals({inner}, d, 3), g = normals({width}, d, 4), h = normals({width}, d, 5),
                    dy = normals({batch, seq, inner}, d, 6);
  const OwnedTensor bytes = testing::tokens({batch, seq}, 1), head = normals({256, width}, d, 7);
  std::vector<OwnedTensor> out;
  const auto fresh = [&](const Shape& shape, Dtype dtype) -> const Tensor& {
    return *out.emplace_back(zeros(shape, dtype));
  };
  out.reserve(64);
  const Tensor pre = fresh({batch, seq, inner}, d), act = fresh({batch, seq, inner}, d);
  ops::linear(ctx, x, w, b, pre);
  ops::linear_gelu(ctx, x, w, b, pre, act);
  const Tensor dx = fresh({batch, seq, width}, d), dpre = fresh({batch, seq, inner}, d);
  ops::linear_backward_input(ctx, dy, w, dx);
  ops::linear_backward_weight(ctx, dy, x, fresh({inner, width}, d), fresh({inner}, d));
  ops::gelu(ctx, pre, act);
  ops::gelu_backward(ctx, dy, pre, dpre);
  ops::linear_backward_input_gelu(ctx, x, normals({width, inner}, d, 8), pre, dpre);
  const Tensor y = fresh({batch, seq, width}, d), mean = fresh({rows}, d), rstd = fresh({rows}, d);
  ops::layer_norm(ctx, x, g, h, 1e-5f, y, mean, rstd);
  ops::layer_norm_backward(ctx, dx, x, g, mean, rstd, y, true, fresh({width}, d), fresh({width}, d));
  ops::dropout_add(ctx, dx, x, 0.3f, 1, fresh({batch, seq, width}, d));
  ops::dropout_backward(ctx, dx, 0.3f, 1, fresh({batch, seq, width}, d));
  ops::embed(ctx, {g, head, {{64, normals({11, width}, d, 9)}, {1, normals({64, width}, d, 10)}}, 0}, bytes,
             fresh({batch, seq, width}, d));
  const Tensor start = fresh({width}, d), table = fresh({256, width}, d), row = fresh({11, width}, d);
  ops::embed_backward(ctx, dx, bytes, {start, table, {{64, row}, {1, fresh({64, width}, d)}}, 0});
  ops::cross_entropy(ctx, x, head, bytes, fresh({batch, seq}, d));
  const Tensor losses = fresh({batch, seq}, d), dhidden = fresh({batch, seq, width}, d);
  ops::cross_entropy_with_gradient(ctx, x, head, bytes, 0.5, losses, dhidden, fresh({256, width}, d));
  ops::add(ctx, x, dx, fresh({batch, seq, width}, d));
  ops::sum(ctx, x, fresh({1}, Dtype::f64));
  ops::sum_of_squares(ctx, x, fresh({1}, Dtype::f64));
  return out;
}

TEST(EveryOp, GivesTheSameBitsForAnyNumberOfThreads) {
  const int threads = omp_get_max_threads();
  for (const Dtype d : {Dtype::f32, Dtype::f64}) {
    std::vector<std::vector<OwnedTensor>> results;
    for (const int n : {1, 2, 2, 3}) {
      omp_set_num_threads(n);
      TestContext ctx;
      const std::int64_t step = 5;
      ctx.step = &step;
      results.push_back(run_everything(ctx, d));
    }
    for (std::size_t i = 1; i < results.size(); ++i)
      for (std::size_t k = 0; k < results[0].size(); ++k)
        EXPECT_EQ(results[i][k], results[0][k]) << kernels::name_of(d) << ", output " << k << ", run " << i;
  }
  omp_set_num_threads(threads);
}

TEST(EveryOp, PlansTheScratchThatItTakesAndGivesItBack) {
  for (const Dtype d : {Dtype::f32, Dtype::f64}) {
    TestContext ctx;
    const std::int64_t step = 5;
    ctx.step = &step;
    const std::vector<OwnedTensor> out = run_everything(ctx, d);
    EXPECT_EQ(ctx.arena->scratch_used(), 0u);
    Arena planned;
    Context plan;
    plan.arena = &planned;
    plan.step = &step;
    const std::vector<OwnedTensor> untouched = run_everything(plan, d);
    EXPECT_EQ(planned.high_water(), ctx.arena->high_water());
    EXPECT_GT(planned.high_water(), 0u);
    for (const OwnedTensor& t : untouched) EXPECT_EQ(t, zeros(t->shape(), t->dtype()));
  }
}

}  // namespace
}  // namespace longstride
