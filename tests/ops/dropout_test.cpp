#include "framework/core/errors.h"
#include "framework/ops/normalise.h"
#include "kernels/base/philox.h"
#include "tests/ops/reference.h"

namespace longstride {
namespace {

using testing::normals;
using testing::OwnedTensor;
using testing::TestContext;
using testing::zeros;

constexpr std::uint32_t layer = 3;

class DropoutTest : public ::testing::Test {
 protected:
  DropoutTest() {
    ctx.seed = 99;
    ctx.step = &step;
  }
  OwnedTensor dropped(const Tensor& branch, const Tensor& residual, float p, Dtype dtype) {
    OwnedTensor y(branch.shape(), dtype);
    ops::dropout_add(ctx, branch, residual, p, layer, y);
    return y;
  }

  TestContext ctx;
  std::int64_t step = 12;
};

// Straight from the definition of the mask.
TEST_F(DropoutTest, EqualsTheDefinition) {
  for (const Dtype dtype : {Dtype::f32, Dtype::f64})
    for (const Shape& shape : {Shape{1, 1, 1}, Shape{2, 5, 17}, Shape{3, 7, 513}}) {
      const OwnedTensor branch = normals(shape, dtype, 1), residual = normals(shape, dtype, 2);
      ctx.first_row = 2;
      const OwnedTensor y = dropped(branch, residual, 0.3f, dtype);
      const auto first = static_cast<std::uint64_t>(2 * shape[1] * shape[2]);
      const double limit = 0.3f * 4294967296.0;
      for (std::int64_t i = 0; i < shape.count(); ++i) {
        const std::uint64_t e = first + static_cast<std::uint64_t>(i);
        const std::uint32_t word =
            kernels::philox(99, e / 4, 12, kernels::domain_of(kernels::Purpose::dropout, layer)).word[e % 4];
        const double expected = residual.at(i) + (word < limit ? 0.0 : branch.at(i) / (1 - double{0.3f}));
        EXPECT_NEAR(y.at(i), expected, 4e-7 * (1 + std::abs(expected))) << i;
        EXPECT_EQ(y.at(i) == residual.at(i), word < limit) << i;
      }
    }
}

TEST_F(DropoutTest, BackwardAppliesTheSameMask) {
  const Dtype d = Dtype::f32;
  const Shape shape{2, 9, 33};
  OwnedTensor ones(shape, d), dbranch(shape, d);
  for (std::int64_t i = 0; i < shape.count(); ++i) ones.set(i, 1);
  const OwnedTensor forward = dropped(ones, zeros(shape, d), 0.4f, d);
  ops::dropout_backward(ctx, ones, 0.4f, layer, dbranch);
  EXPECT_EQ(forward, dbranch);
  ops::dropout_backward(ctx, ones, 0.4f, layer, ones);
  EXPECT_EQ(forward, ones);
}

// The masks of a global batch do not depend on how it is cut into micro-batches and ranks.
TEST_F(DropoutTest, DoesNotDependOnTheSplitIntoMicroBatches) {
  const Dtype d = Dtype::f32;
  const Shape shape{6, 7, 15};  // 105 elements a sequence: micro-batches start inside a group of four
  const OwnedTensor branch = normals(shape, d, 1), residual = normals(shape, d, 2);
  const OwnedTensor whole = dropped(branch, residual, 0.4f, d);
  for (const std::int64_t micro : {1, 2, 3}) {
    OwnedTensor parts(shape, d);
    for (std::int64_t begin = 0; begin < 6; begin += micro) {
      ctx.first_row = begin;
      ops::dropout_add(ctx, branch->slice(0, begin, begin + micro), residual->slice(0, begin, begin + micro), 0.4f,
                       layer, parts->slice(0, begin, begin + micro));
    }
    EXPECT_EQ(parts, whole) << micro;
  }
}

TEST_F(DropoutTest, MasksDifferByStepLayerAndSeed) {
  const Dtype d = Dtype::f32;
  const Shape shape{1, 8, 64};
  const OwnedTensor branch = normals(shape, d, 1), none = zeros(shape, d);
  const OwnedTensor y = dropped(branch, none, 0.5f, d);
  EXPECT_EQ(y, dropped(branch, none, 0.5f, d));
  step = 13;
  EXPECT_FALSE(y == dropped(branch, none, 0.5f, d));
  step = 12;
  ctx.seed = 100;
  EXPECT_FALSE(y == dropped(branch, none, 0.5f, d));
  ctx.seed = 99;
  OwnedTensor other(shape, d);
  ops::dropout_add(ctx, branch, none, 0.5f, layer + 1, other);
  EXPECT_FALSE(y == other);
}

TEST_F(DropoutTest, KeepsTheGivenShareAndTheMean) {
  const Dtype d = Dtype::f64;
  const Shape shape{1, 1000, 100};
  OwnedTensor ones(shape, d);
  for (std::int64_t i = 0; i < shape.count(); ++i) ones.set(i, 1);
  for (const float p : {0.01f, 0.25f, 0.4f, 0.9f}) {
    const OwnedTensor y = dropped(ones, zeros(shape, d), p, d);
    double kept = 0, sum = 0;
    for (std::int64_t i = 0; i < shape.count(); ++i) {
      kept += y.at(i) != 0;
      sum += y.at(i);
    }
    const double n = static_cast<double>(shape.count()), deviation = std::sqrt(p * (1 - p) / n);
    EXPECT_NEAR(kept / n, 1 - p, 5 * deviation) << p;
    EXPECT_NEAR(sum / n, 1, 5 * deviation / (1 - p)) << p;
  }
}

TEST_F(DropoutTest, OutsideTrainingAndAtZeroItOnlyAdds) {
  const Dtype d = Dtype::f32;
  const Shape shape{2, 3, 17};
  const OwnedTensor branch = normals(shape, d, 1), residual = normals(shape, d, 2);
  OwnedTensor sum(shape, d), dbranch(shape, d);
  for (std::int64_t i = 0; i < shape.count(); ++i) sum.set(i, branch.at(i) + residual.at(i));
  EXPECT_EQ(dropped(branch, residual, 0, d), sum);
  ctx.step = nullptr;
  EXPECT_EQ(dropped(branch, residual, 0.4f, d), sum);
  ops::dropout_backward(ctx, branch, 0.4f, layer, dbranch);
  EXPECT_EQ(dbranch, branch);
}

TEST_F(DropoutTest, ResultMayTakeThePlaceOfTheBranch) {
  const Dtype d = Dtype::f32;
  const Shape shape{2, 30, 17};
  OwnedTensor branch = normals(shape, d, 1);
  const OwnedTensor residual = normals(shape, d, 2), y = dropped(branch, residual, 0.4f, d);
  ops::dropout_add(ctx, branch, residual, 0.4f, layer, branch);
  EXPECT_EQ(branch, y);
}

TEST_F(DropoutTest, RefusesAProbabilityOfOne) {
  const OwnedTensor x = zeros({1, 2, 3}, Dtype::f32);
  EXPECT_THROW(ops::dropout_add(ctx, x, x, 1.0f, layer, x), InternalError);
}

}  // namespace
}  // namespace longstride
