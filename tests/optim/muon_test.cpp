// Muon: its update of a matrix, and what it leaves to Adam. training_muon in tests/golden/training.safetensors compares
// it with an independent implementation.
#include "framework/optim/muon.h"

#include <gtest/gtest.h>
#include <omp.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "tests/optim/trial.h"

namespace longstride::muon_test {
namespace {

using testing::normals;
using testing::OwnedTensor;
using testing::Trial;

Optimizer::Config config() {
  Optimizer::Config c;
  c.lr = 0.01;
  c.steps = 20;
  c.weight_decay = 0.1;
  c.clip = 1.0;
  c.ema = 0.9;
  return c;
}

struct Size {
  std::int64_t rows, columns;
};
const Size sizes[] = {{12, 40}, {40, 12}, {24, 24}, {1, 9}, {9, 1}, {1, 1}};

// A matrix with singular values between about 1 / 3 and 3: far from orthogonal and far from singular.
OwnedTensor gradient_of(Size s, Dtype dtype) {
  OwnedTensor g =
      normals({s.rows * s.columns}, dtype, 5, 1 / std::sqrt(static_cast<double>(std::max(s.rows, s.columns))));
  for (std::int64_t i = 0; i < std::min(s.rows, s.columns); ++i) g.set(i * s.columns + i, g.at(i * s.columns + i) + 2);
  return g;
}

// The part that one step subtracts from the weights, divided by its factor: the orthogonalised matrix.
std::vector<double> update_of(Size s, const OwnedTensor& gradient) {
  Optimizer::Config c = config();
  c.weight_decay = 0;
  Trial run(c, s.rows * s.columns, s.rows * s.columns, Dtype::f64,
            std::vector<HiddenMatrix>{{0, s.rows, s.columns, s.rows * s.columns}});
  const OwnedTensor before = run.weights;
  run.advance(gradient);
  const double factor =
      run.optimizer.scalars()->learning_rate * 0.2 * std::sqrt(static_cast<double>(std::max(s.rows, s.columns)));
  std::vector<double> update;
  for (std::int64_t i = 0; i < s.rows * s.columns; ++i) update.push_back((before.at(i) - run.weights.at(i)) / factor);
  return update;
}

// Rotates pairs of rows until all are orthogonal (one-sided Jacobi) and returns their lengths.
std::vector<double> singular_values(std::vector<double> a, std::int64_t rows, std::int64_t columns) {
  if (rows > columns) {
    std::vector<double> turned(a.size());
    for (std::int64_t i = 0; i < rows * columns; ++i)
      turned[static_cast<std::size_t>(i % columns * rows + i / columns)] = a[static_cast<std::size_t>(i)];
    return singular_values(turned, columns, rows);
  }
  const auto row = [&](std::int64_t r) { return a.data() + r * columns; };
  const auto dot = [&](std::int64_t p, std::int64_t q) {
    double sum = 0;
    for (std::int64_t k = 0; k < columns; ++k) sum += row(p)[k] * row(q)[k];
    return sum;
  };
  for (int sweep = 0; sweep < 20; ++sweep)
    for (std::int64_t p = 0; p < rows; ++p)
      for (std::int64_t q = p + 1; q < rows; ++q) {
        const double angle = 0.5 * std::atan2(2 * dot(p, q), dot(p, p) - dot(q, q));
        const double c = std::cos(angle), s = std::sin(angle);
        for (std::int64_t k = 0; k < columns; ++k) {
          const double x = row(p)[k], y = row(q)[k];
          row(p)[k] = c * x + s * y;
          row(q)[k] = c * y - s * x;
        }
      }
  std::vector<double> values;
  for (std::int64_t r = 0; r < rows; ++r) values.push_back(std::sqrt(dot(r, r)));
  return values;
}

TEST(Muon, SingularValuesOfTheUpdateAreNearOne) {
  for (const Size s : sizes) {
    const OwnedTensor gradient = gradient_of(s, Dtype::f64);
    for (const double value : singular_values(update_of(s, gradient), s.rows, s.columns)) {
      EXPECT_GT(value, 0.65) << s.rows << " x " << s.columns;
      EXPECT_LT(value, 1.25) << s.rows << " x " << s.columns;
    }
  }
}

// U V^T times the transpose of U S V^T is U S U^T: symmetric. The same holds for a matrix that differs from U V^T only
// in its singular values.
TEST(Muon, TheUpdateKeepsTheSingularVectors) {
  for (const Size s : sizes) {
    const OwnedTensor g = gradient_of(s, Dtype::f64);
    const std::vector<double> update = update_of(s, g);
    const auto product = [&](std::int64_t i, std::int64_t j) {
      double sum = 0;
      for (std::int64_t k = 0; k < s.columns; ++k)
        sum += update[static_cast<std::size_t>(i * s.columns + k)] * g.at(j * s.columns + k);
      return sum;
    };
    for (std::int64_t i = 0; i < s.rows; ++i) {
      EXPECT_GT(product(i, i), 0);
      for (std::int64_t j = 0; j < i; ++j) EXPECT_NEAR(product(i, j), product(j, i), 1e-10);
    }
  }
}

TEST(Muon, TheMomentumIsThatOfNesterov) {
  constexpr Size s{5, 8};
  Optimizer::Config c = config();
  c.clip = 0;
  Trial run(c, 40, 40, Dtype::f64, std::vector<HiddenMatrix>{{0, s.rows, s.columns, 40}});
  const OwnedTensor first = normals({40}, Dtype::f64, 11), second = normals({40}, Dtype::f64, 12);
  run.advance(first);
  const OwnedTensor before = run.weights;
  run.advance(second);
  OwnedTensor looked_ahead({40}, Dtype::f64);  // the matrix that the second step orthogonalises, up to scale
  for (std::int64_t i = 0; i < 40; ++i) {
    const double m = 0.95 * 0.05 * first.at(i) + 0.05 * second.at(i);
    EXPECT_NEAR(run.m.at(i), m, 1e-15);
    EXPECT_EQ(run.v.at(i), 0);
    looked_ahead.set(i, 0.95 * m + 0.05 * second.at(i));
  }
  const std::vector<double> expected = update_of(s, looked_ahead);
  const double rate = run.optimizer.scalars()->learning_rate;
  for (std::int64_t i = 0; i < 40; ++i) {
    const double step = 0.2 * std::sqrt(8.0) * expected[static_cast<std::size_t>(i)] + 0.1 * before.at(i);
    // The tolerance is due to the 1e-7 added to norms, which makes a matrix's size matter slightly.
    EXPECT_NEAR(run.weights.at(i), before.at(i) - rate * step, 1e-5 * rate);
  }
}

// Layers declare what is stacked in their matrices; padding belongs to none.
TEST(Muon, FindsTheMatricesOfLayersAndNoOthers) {
  ParameterSet parameters;
  parameters.add("table", {3, 7}, {});
  parameters.add("a", {9, 7}, {}).stacked = {2, 3, 4};
  parameters.add("a.bias", {9}, {});
  parameters.add("b", {64, 2}, {}).stacked = {64};
  parameters.lay_out();
  const std::vector<HiddenMatrix> found = hidden_matrices(parameters);
  ASSERT_EQ(found.size(), 4u);
  const std::int64_t begins[] = {64, 64 + 14, 64 + 35, 128}, rows[] = {2, 3, 4, 64}, padded[] = {14, 21, 29, 128};
  for (std::size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(found[i].begin, begins[i]);
    EXPECT_EQ(found[i].rows, rows[i]);
    EXPECT_EQ(found[i].columns, i < 3 ? 7 : 2);
    EXPECT_EQ(found[i].padded_count, padded[i]);
  }
}

const std::vector<HiddenMatrix> some_matrices = {{64, 4, 16, 64}, {128, 16, 5, 80}, {208, 5, 8, 48}};

TEST(Muon, AdamUpdatesEverythingButMatrices) {
  Trial mixed(config(), 400, 400, Dtype::f32, some_matrices), adam(config(), 400, 400, Dtype::f32);
  for (std::uint32_t t = 0; t < 3; ++t)
    for (Trial* run : {&mixed, &adam}) run->advance(normals({400}, Dtype::f32, 20 + t));
  for (std::int64_t i = 0; i < 400; ++i) {
    const bool padding = i >= 248 && i < 256, matrix = i >= 64 && i < 248;
    if (padding) continue;
    EXPECT_EQ(mixed.weights.at(i) == adam.weights.at(i), !matrix) << i;
    EXPECT_EQ(mixed.ema.at(i) == adam.ema.at(i), !matrix) << i;
  }
}

TEST(Muon, EveryMatrixIsUpdatedIndependently) {
  Trial all(config(), 400, 400, Dtype::f32, some_matrices);
  all.advance(normals({400}, Dtype::f32, 20));
  for (const HiddenMatrix& one : some_matrices) {
    Trial alone(config(), 400, 400, Dtype::f32, std::vector{one});
    alone.advance(normals({400}, Dtype::f32, 20));
    for (std::int64_t i = one.begin; i < one.begin + one.count(); ++i)
      ASSERT_EQ(all.weights.at(i), alone.weights.at(i)) << i;
  }
}

TEST(Muon, AGradientThatIsNotFiniteChangesNothing) {
  for (const double value : {std::numeric_limits<double>::infinity(), std::numeric_limits<double>::quiet_NaN()}) {
    Trial run(config(), 400, 400, Dtype::f32, some_matrices);
    run.advance(normals({400}, Dtype::f32, 6));
    const OwnedTensor weights = run.weights, m = run.m, ema = run.ema;
    OwnedTensor gradient = normals({400}, Dtype::f32, 7);
    gradient.set(150, value);
    run.advance(gradient);
    EXPECT_EQ(run.weights, weights);
    EXPECT_EQ(run.m, m);
    EXPECT_EQ(run.ema, ema);
    EXPECT_EQ(run.optimizer.scalars()->skipped, 1);
    run.advance(normals({400}, Dtype::f32, 8));
    EXPECT_FALSE(run.weights == weights);
  }
}

TEST(Muon, WithoutAGradientWeightsOnlyDecay) {
  Trial run(config(), 400, 400, Dtype::f64, some_matrices);
  const OwnedTensor before = run.weights;
  run.advance(testing::zeros({400}, Dtype::f64));
  const double kept = 1 - 0.1 * run.optimizer.scalars()->learning_rate;
  for (std::int64_t i = 64; i < 248; ++i) EXPECT_NEAR(run.weights.at(i), kept * before.at(i), 1e-15);
}

TEST(Muon, GivesTheSameBitsForAnyNumberOfThreads) {
  const int threads = omp_get_max_threads();
  const std::int64_t count = 160 * 700;
  std::vector<OwnedTensor> results;
  for (int n : {1, 2, 3}) {
    omp_set_num_threads(n);
    Trial run(config(), count, count, Dtype::f32, std::vector<HiddenMatrix>{{0, 160, 700, count}});
    for (std::uint32_t t = 0; t < 2; ++t) run.advance(normals({count}, Dtype::f32, 20 + t));
    results.push_back(run.weights);
  }
  omp_set_num_threads(threads);
  EXPECT_EQ(results[1], results[0]);
  EXPECT_EQ(results[2], results[0]);
}

TEST(Muon, PlannedScratchIsWhatAStepTakes) {
  Arena planned;
  Context plan;
  plan.arena = &planned;
  const Tensor flat(nullptr, Dtype::f32, {400});
  const Tensor scalars(nullptr, Dtype::u8, {static_cast<std::int64_t>(Optimizer::scalars_bytes)});
  Optimizer optimizer(config(), {flat, flat, flat, scalars}, {{0, 400, true}},
                      {.orthogonalised = some_matrices, .tensors = {}, .factored = {}});
  testing::take_step(optimizer, plan, flat, flat);
  Trial run(config(), 400, 400, Dtype::f32, some_matrices);
  run.advance(normals({400}, Dtype::f32, 5));
  EXPECT_EQ(planned.high_water(), run.ctx.arena->high_water());
  EXPECT_GE(planned.high_water(), 2u * 80 * sizeof(float));
}

}  // namespace
}  // namespace longstride::muon_test
