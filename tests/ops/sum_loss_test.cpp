#include "kernels/sum_loss/sum_loss.h"

#include <limits>

#include "tests/ops/op_test.h"

namespace longstride::testing {
namespace {

using kernels::SumLossArgs;

class SumLossTest : public OpTest {};
LONGSTRIDE_OP_TESTS(SumLossTest);

TEST_P(SumLossTest, AddsTheFactorToEveryGradientAndTheSumTimesItToTheLoss) {
  for (const std::int64_t count : {1, 8, 128, 1000}) {
    Operand x = normals({count}, exact(), 1), gradient = normals({count}, exact(), 2);
    Operand loss = filled({1}, Dtype::f64, 7);
    const double factor = 0.375;
    run(SumLossArgs{.x = x, .gradient = gradient, .loss = loss, .factor = factor}, {&gradient, &loss});
    const std::vector<double> found = gradient.found();
    double sum = 0, magnitude = 7;
    for (std::int64_t i = 0; i < count; ++i) {
      ASSERT_EQ(found[static_cast<std::size_t>(i)], rounded(gradient.at(i) + factor, exact())) << i;
      sum += x.at(i);
      magnitude += std::abs(x.at(i));
    }
    // In any order of adding doubles, each addition rounds by at most epsilon / 2 of the magnitude.
    const double rounding = static_cast<double>(count + 2) * std::numeric_limits<double>::epsilon() / 2;
    EXPECT_NEAR(loss.found()[0], 7 + factor * sum, rounding * magnitude) << count;
  }
}

TEST_P(SumLossTest, TheLossScaleMultipliesTheGradientAlone) {
  const Operand x = filled({3}, exact(), 0.5), scale = filled({1}, Dtype::f32, 1024);
  Operand gradient = filled({3}, exact(), 1), loss = filled({1}, Dtype::f64, 0);
  run(SumLossArgs{.x = x, .gradient = gradient, .loss = loss, .factor = 0.25, .loss_scale = scale->as<const float>()},
      {&gradient, &loss});
  for (const double g : gradient.found()) EXPECT_EQ(g, 257);
  EXPECT_EQ(loss.found()[0], 0.375);
}

TEST_P(SumLossTest, RefusesOtherShapesAndTypes) {
  const Operand x = normals({4}, exact(), 1), other = normals({5}, exact(), 1), loss = filled({1}, Dtype::f64, 0);
  EXPECT_THROW(ops::run(ctx, SumLossArgs{.x = x, .gradient = other, .loss = loss}), InternalError);
  EXPECT_THROW(ops::run(ctx, SumLossArgs{.x = x, .gradient = x, .loss = x}), InternalError);
}

}  // namespace
}  // namespace longstride::testing
