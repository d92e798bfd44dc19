#include "framework/ops/basic.h"

#include <gtest/gtest.h>
#include <omp.h>

#include <vector>

#include "framework/ops/cross_entropy.h"
#include "framework/ops/linear.h"
#include "tests/ops/calls.h"
#include "tests/support/test_tensors.h"

namespace longstride {
namespace {

using testing::dropout_add_layer_norm;
using testing::embed;
using testing::embed_backward;
using testing::embedding;
using testing::layer_norm_backward_dropout;
using testing::norm_args;
using testing::norm_backward_args;
using testing::normals;
using testing::OwnedTensor;
using testing::TestContext;
using testing::zeros;

// Runs every op once, forward and backward, on shapes that are cut into several blocks and chunks; returns the results.
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
  ops::linear_relu(ctx, x, w, b, fresh({batch, seq, inner}, d));
  const Tensor dx = fresh({batch, seq, width}, d), dpre = fresh({batch, seq, inner}, d);
  ops::linear_backward_input(ctx, dy, w, dx);
  ops::linear_backward_weight(ctx, dy, x, fresh({inner, width}, d), fresh({inner}, d));
  ops::linear_backward_input_gelu(ctx, x, normals({width, inner}, d, 8), pre, dpre, fresh({inner}, d));
  ops::linear_backward_input_relu(ctx, x, normals({width, inner}, d, 8), pre, fresh({batch, seq, inner}, d),
                                  fresh({inner}, d));
  const Tensor y = fresh({batch, seq, width}, d), mean = fresh({rows}, d), rstd = fresh({rows}, d);
  ops::run(ctx, norm_args(x, {g, h, mean, rstd}, y));
  ops::run(ctx, norm_backward_args(dx, x, {g, g, mean, rstd}, y, kernels::HeldGradient::of_x,
                                   {fresh({width}, d), fresh({width}, d)}));
  const Tensor sum = fresh({batch, seq, width}, d), dbranch = fresh({batch, seq, width}, d);
  dropout_add_layer_norm(ctx, dx, x, sum, {0.3f, 1}, {g, h, mean, rstd}, fresh({batch, seq, width}, d));
  layer_norm_backward_dropout(ctx,
                              norm_backward_args(x, sum, {g, g, mean, rstd}, y, kernels::HeldGradient::none,
                                                 {fresh({width}, d), fresh({width}, d)}),
                              y, {0.3f, 1}, dbranch, fresh({width}, d));
  embed(ctx, embedding(g, head, {{64, normals({11, width}, d, 9)}, {1, normals({64, width}, d, 10)}}), bytes,
        fresh({batch, seq, width}, d));
  const Tensor start = fresh({width}, d), table = fresh({256, width}, d), row = fresh({11, width}, d);
  embed_backward(ctx, dx, bytes, embedding(start, table, {{64, row}, {1, fresh({64, width}, d)}}));
  ops::cross_entropy(ctx, {x, head, bytes, fresh({batch, seq}, d)});
  const Tensor losses = fresh({batch, seq}, d), dhidden = fresh({batch, seq, width}, d);
  ops::cross_entropy(ctx, {x, head, bytes, losses, 0.5, dhidden, fresh({256, width}, d)});
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

TEST(EveryOp, PlansTheScratchThatItTakesAndReleasesIt) {
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
