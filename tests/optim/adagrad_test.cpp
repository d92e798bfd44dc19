// Adagrad, and its limit on the gradient of a tensor. The training_adagrad cases in tests/golden/training.safetensors
// compare it with torch.optim.Adagrad.
#include "kernels/adagrad/adagrad.h"

#include <gtest/gtest.h>
#include <omp.h>

#include <cmath>
#include <limits>

#include "tests/optim/trial.h"

namespace longstride::adagrad_test {
namespace {

using testing::normals;
using testing::OwnedTensor;
using testing::Trial;

Optimizer::Config config(double tensor_clip = 0) {
  Optimizer::Config c;
  c.kind = OptimizerKind::adagrad;
  c.lr = 0.01;
  c.steps = 20;
  c.schedule = kernels::ScheduleKind::constant;
  c.epsilon = 1e-10;
  c.weight_decay = 0.1;
  c.clip = 1.0;
  c.ema = 0.9;
  c.tensor_clip = tensor_clip;
  return c;
}

const OptimizerParts three_tensors = {
    .orthogonalised = {}, .tensors = {{0, 64}, {64, 100}, {192, 200}}, .factored = {}};
constexpr std::int64_t count = 448;  // the last elements belong to no tensor, like padding

// The factor of the learning rate of each element: the second tensor's gradient is above the limit, the others' below.
double factor_of(std::int64_t i, const OwnedTensor& gradient, double clip_coefficient, double limit) {
  for (const FlatRange& tensor : three_tensors.tensors) {
    if (i < tensor.begin || i >= tensor.end()) continue;
    double squares = 0;
    for (std::int64_t k = tensor.begin; k < tensor.end(); ++k) squares += gradient.at(k) * gradient.at(k);
    return std::min(1.0, limit / (clip_coefficient * std::sqrt(squares)));
  }
  return 0;
}

OwnedTensor uneven_gradient(std::uint32_t stream) {
  OwnedTensor gradient = normals({count}, Dtype::f64, stream, 0.001);
  for (std::int64_t i = 64; i < 164; ++i) gradient.set(i, 1000 * gradient.at(i));
  for (std::int64_t i = 164; i < 192; ++i) gradient.set(i, 0);
  for (std::int64_t i = 392; i < count; ++i) gradient.set(i, 0);
  return gradient;
}

TEST(Adagrad, EqualsItsDefinitionInDouble) {
  for (const double limit : {0.0, 0.25}) {
    Trial run(config(limit), count, 164, Dtype::f64, limit > 0 ? three_tensors : OptimizerParts{});
    OwnedTensor w = run.weights, sum = testing::zeros({count}, Dtype::f64);
    for (std::uint32_t t = 0; t < 5; ++t) {
      const OwnedTensor gradient = uneven_gradient(20 + t);
      run.advance(gradient);
      const double scale = run.optimizer.scalars()->clip_coefficient;
      EXPECT_LT(scale, 1) << "the global norm is clipped too";
      for (std::int64_t i = 0; i < count; ++i) {
        const double factor = limit > 0 ? factor_of(i, gradient, scale, limit) : 1, g = scale * gradient.at(i);
        if (limit > 0 && factor == 0) continue;
        EXPECT_EQ(factor<1, limit> 0 && i >= 64 && i < 164) << i;
        sum.set(i, sum.at(i) + g * g);  // the limit changes only the rate
        const double decay = i < 164 ? 0.1 : 0;
        w.set(i, w.at(i) - 0.01 * (factor * g / (std::sqrt(sum.at(i)) + 1e-10) + decay * w.at(i)));
        ASSERT_NEAR(run.v.at(i), sum.at(i), 1e-14) << i;
        ASSERT_NEAR(run.weights.at(i), w.at(i), 1e-14) << i << " after step " << t;
      }
    }
  }
}

// A tensor in two pieces of a sharded optimizer: the norm is that of the whole after the ranks have added up.
TEST(Adagrad, PiecesOfATensorShareItsNorm) {
  const OwnedTensor gradient = uneven_gradient(3);
  Trial whole(config(0.25), count, 0, Dtype::f64, three_tensors);
  whole.advance(gradient);
  for (const FlatRange piece : {FlatRange{0, 100}, FlatRange{100, 348}}) {
    Trial part(config(0.25), count, 0, Dtype::f64, three_tensors);
    const auto of = [&](const Tensor& t) { return t.slice(0, 0, piece.count); };
    Optimizer optimizer(config(0.25), {{}, of(part.v), of(part.ema), part.scalars, {}, part.tensor_squares}, {piece},
                        three_tensors);
    optimizer.start(part.ctx, part.weights);
    optimizer.measure(part.ctx, gradient, {piece});
    *optimizer.sum_of_squares().as<double>() = *whole.optimizer.sum_of_squares().as<double>();
    for (std::int64_t i = 0; i < 3; ++i) part.tensor_squares.set(i, whole.tensor_squares.at(i));
    optimizer.update(part.ctx, part.weights, gradient);
    for (std::int64_t i = piece.begin; i < piece.end(); ++i) ASSERT_EQ(part.weights.at(i), whole.weights.at(i)) << i;
  }
}

TEST(Adagrad, AGradientThatIsNotFiniteChangesNothing) {
  Trial run(config(0.25), count, 164, Dtype::f64, three_tensors);
  run.advance(uneven_gradient(6));
  const OwnedTensor weights = run.weights, v = run.v;
  OwnedTensor gradient = uneven_gradient(7);
  gradient.set(70, std::numeric_limits<double>::infinity());
  run.advance(gradient);
  EXPECT_EQ(run.weights, weights);
  EXPECT_EQ(run.v, v);
  run.advance(uneven_gradient(8));
  EXPECT_FALSE(run.weights == weights);
}

TEST(Adagrad, GivesTheSameBitsForAnyNumberOfThreads) {
  const int threads = omp_get_max_threads();
  std::vector<OwnedTensor> results;
  for (int n : {1, 2, 3}) {
    omp_set_num_threads(n);
    Trial run(config(1e-3), 100003, 70000, Dtype::f32,
              OptimizerParts{.orthogonalised = {}, .tensors = {{0, 50000}, {50000, 50003}}, .factored = {}});
    for (std::uint32_t t = 0; t < 3; ++t) run.advance(normals({100003}, Dtype::f32, 20 + t));
    results.push_back(run.weights);
  }
  omp_set_num_threads(threads);
  EXPECT_EQ(results[1], results[0]);
  EXPECT_EQ(results[2], results[0]);
}

}  // namespace
}  // namespace longstride::adagrad_test
