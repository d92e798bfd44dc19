// Adafactor: its layout, and properties of its update. The training_adafactor cases in
// tests/golden/training.safetensors compare it with an independent implementation.
#include "framework/optim/adafactor.h"

#include <gtest/gtest.h>
#include <omp.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <string>

#include "tests/optim/trial.h"

namespace longstride::adafactor_test {
namespace {

using testing::normals;
using testing::OwnedTensor;
using testing::Trial;

Optimizer::Config config() {
  Optimizer::Config c;
  c.kind = OptimizerKind::adafactor;
  c.lr = 0.01;
  c.steps = 20;
  c.schedule = kernels::ScheduleKind::constant;
  c.beta1 = 0;
  c.epsilon = 1e-30;
  c.weight_decay = 0;
  return c;
}

// A matrix of 6 x 10 and another, a vector of 30.
const OptimizerParts some = {
    .orthogonalised = {}, .tensors = {}, .factored = {{0, 6, 10, 0, 6}, {64, 6, 10, 16, 22}, {128, 1, 30, 64, 128}}};
constexpr std::int64_t count = 192;

double rms(const OwnedTensor& t, std::int64_t begin, std::int64_t n) {
  double sum = 0;
  for (std::int64_t i = begin; i < begin + n; ++i) sum += t.at(i) * t.at(i);
  return std::sqrt(sum / static_cast<double>(n));
}

TEST(Adafactor, TheLayoutHasRowsAndColumnsOfEveryMatrix) {
  ParameterSet parameters;
  parameters.add("table", {3, 7}, {});
  parameters.add("a", {9, 7}, {}).stacked = {2, 3, 4};
  parameters.add("bias", {100}, {});
  parameters.lay_out();
  const ParameterSet layout = factor_layout(parameters);
  std::map<std::string, std::int64_t> counts;
  for (const Parameter& p : layout.all()) counts[p.name] = p.shape.count();
  const std::map<std::string, std::int64_t> expected = {{"r.table", 3}, {"c.table", 7}, {"r.a", 9},
                                                        {"c.a", 21},    {"r.bias", 1},  {"c.bias", 100}};
  EXPECT_EQ(counts, expected);
  const std::vector<FactoredMatrix> found = factored_matrices(parameters);
  ASSERT_EQ(found.size(), 5u);
  const std::int64_t begins[] = {0, 64, 64 + 14, 64 + 35, 128}, rows[] = {3, 2, 3, 4, 1};
  std::vector<int> owners(static_cast<std::size_t>(layout.flat_size()));
  for (std::size_t i = 0; i < 5; ++i) {
    EXPECT_EQ(found[i].begin, begins[i]);
    EXPECT_EQ(found[i].rows, rows[i]);
    EXPECT_EQ(found[i].columns, i < 4 ? 7 : 100);
    for (std::int64_t k = 0; k < found[i].rows; ++k) ++owners[static_cast<std::size_t>(found[i].rows_at + k)];
    for (std::int64_t k = 0; k < found[i].columns; ++k) ++owners[static_cast<std::size_t>(found[i].columns_at + k)];
  }
  EXPECT_EQ(std::count(owners.begin(), owners.end(), 1), 3 + 7 + 9 + 21 + 1 + 100);
  EXPECT_EQ(*std::max_element(owners.begin(), owners.end()), 1) << "two matrices share a moment";
}

// As a table of distances with vectors of its own for every head.
TEST(Adafactor, ATableOfVectorsPerHeadIsAMatrixWithARowPerDistance) {
  ParameterSet parameters;
  parameters.add("table", {5, 3, 2}, {});
  parameters.lay_out();
  const std::vector<FactoredMatrix> found = factored_matrices(parameters);
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].rows, 5);
  EXPECT_EQ(found[0].columns, 6);
  const ParameterSet layout = factor_layout(parameters);
  EXPECT_EQ(layout.all().front().shape.count(), 5);
  EXPECT_EQ(layout.all().back().shape.count(), 6);
}

// If a gradient's squares have rank one, the factors are the squares themselves: the first update is the sign.
TEST(Adafactor, ASquareOfRankOneIsFactoredExactly) {
  Trial run(config(), count, count, Dtype::f64, some);
  OwnedTensor gradient = testing::zeros({count}, Dtype::f64);
  for (std::int64_t i = 0; i < 6; ++i)
    for (std::int64_t j = 0; j < 10; ++j)
      gradient.set(i * 10 + j, ((i + j) % 2 == 0 ? 1 : -1) * static_cast<double>((i + 1) * (j + 2)));
  const OwnedTensor before = run.weights;
  const double size = rms(before, 0, 60);
  run.advance(gradient);
  for (std::int64_t i = 0; i < 60; ++i)
    EXPECT_NEAR(before.at(i) - run.weights.at(i), 0.01 * size * (gradient.at(i) > 0 ? 1 : -1), 1e-14) << i;
  for (std::int64_t i = 64; i < count; ++i) EXPECT_EQ(run.weights.at(i), before.at(i)) << "no gradient: " << i;
}

TEST(Adafactor, TheUpdateIsNoLargerThanItsLimit) {
  for (const double limit : {1.0, 0.25}) {
    Optimizer::Config c = config();
    c.clip_threshold = limit;
    c.scale_parameter = false;
    Trial run(c, count, count, Dtype::f64, some);
    for (std::uint32_t t = 0; t < 4; ++t) {
      const OwnedTensor before = run.weights;
      run.advance(normals({count}, Dtype::f64, 20 + t, t == 3 ? 100 : 1));  // the last is an outlier
      OwnedTensor moved = before;
      for (std::int64_t i = 0; i < count; ++i) moved.set(i, before.at(i) - run.weights.at(i));
      for (const FactoredMatrix& m : some.factored)
        EXPECT_LE(rms(moved, m.begin, m.rows * m.columns), 0.01 * limit * (1 + 1e-12)) << limit << " " << t;
      if (t < 3) continue;
      EXPECT_NEAR(rms(moved, 0, 60), 0.01 * limit, 1e-12);
    }
  }
}

TEST(Adafactor, TheGradientsScaleHardlyMatters) {
  Trial one(config(), count, 0, Dtype::f64, some), other(config(), count, 0, Dtype::f64, some);
  for (std::uint32_t t = 0; t < 3; ++t) {
    OwnedTensor gradient = normals({count}, Dtype::f64, 20 + t);
    one.advance(gradient);
    for (std::int64_t i = 0; i < count; ++i) gradient.set(i, 1e-6 * gradient.at(i));
    other.advance(gradient);
  }
  for (std::int64_t i = 0; i < count; ++i) EXPECT_NEAR(one.weights.at(i), other.weights.at(i), 1e-10);
}

TEST(Adafactor, WeightsOfZeroLeaveIt) {
  Trial run(config(), count, 0, Dtype::f64, some);
  for (std::int64_t i = 0; i < 60; ++i) run.weights.set(i, 0);
  run.advance(normals({count}, Dtype::f64, 20));
  EXPECT_NEAR(rms(run.weights, 0, 60), 0.01 * 1e-3, 1e-6);
  EXPECT_GT(rms(run.weights, 0, 60), 0);
}

TEST(Adafactor, MatricesDecayAndVectorsDoNot) {
  Optimizer::Config c = config();
  c.weight_decay = 0.1;
  Trial run(c, count, 128, Dtype::f64, some);
  const OwnedTensor before = run.weights;
  run.advance(testing::zeros({count}, Dtype::f64));
  for (std::int64_t i = 0; i < 60; ++i) EXPECT_NEAR(run.weights.at(i), (1 - 0.001) * before.at(i), 1e-15);
  for (std::int64_t i = 128; i < count; ++i) EXPECT_EQ(run.weights.at(i), before.at(i));
}

TEST(Adafactor, AGradientThatIsNotFiniteChangesNothing) {
  Optimizer::Config c = config();
  c.beta1 = 0.9;
  Trial run(c, count, 128, Dtype::f64, some);
  run.advance(normals({count}, Dtype::f64, 6));
  const OwnedTensor weights = run.weights, factors = run.factors, m = run.m;
  OwnedTensor gradient = normals({count}, Dtype::f64, 7);
  gradient.set(70, std::numeric_limits<double>::quiet_NaN());
  run.advance(gradient);
  EXPECT_EQ(run.weights, weights);
  EXPECT_EQ(run.factors, factors);
  EXPECT_EQ(run.m, m);
  run.advance(normals({count}, Dtype::f64, 8));
  EXPECT_FALSE(run.weights == weights);
}

TEST(Adafactor, AfterASkippedStepItContinuesAsIfThatStepHadNotBeen) {
  Optimizer::Config c = config();
  c.schedule = kernels::ScheduleKind::constant;
  c.warmup = 0;
  Trial run(c, count, 128, Dtype::f64, some), straight(c, count, 128, Dtype::f64, some);
  OwnedTensor bad = normals({count}, Dtype::f64, 3);
  bad.set(7, std::numeric_limits<double>::infinity());
  for (std::uint32_t t = 0; t < 3; ++t) {
    run.advance(bad);
    run.advance(normals({count}, Dtype::f64, 6 + t));
    straight.advance(normals({count}, Dtype::f64, 6 + t));
    EXPECT_EQ(run.weights, straight.weights);
  }
}

TEST(Adafactor, GivesTheSameBitsForAnyNumberOfThreads) {
  const int threads = omp_get_max_threads();
  constexpr std::int64_t rows = 160, columns = 700;
  std::vector<OwnedTensor> results;
  for (int n : {1, 2, 3}) {
    omp_set_num_threads(n);
    Trial run(config(), rows * columns, rows * columns, Dtype::f32,
              OptimizerParts{.orthogonalised = {}, .tensors = {}, .factored = {{0, rows, columns, 0, rows}}});
    for (std::uint32_t t = 0; t < 2; ++t) run.advance(normals({rows * columns}, Dtype::f32, 20 + t));
    results.push_back(run.weights);
  }
  omp_set_num_threads(threads);
  EXPECT_EQ(results[1], results[0]);
  EXPECT_EQ(results[2], results[0]);
}

}  // namespace
}  // namespace longstride::adafactor_test
