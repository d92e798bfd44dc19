#include "framework/optim/optimizer.h"

#include <gtest/gtest.h>
#include <omp.h>

#include <limits>

#include "framework/core/errors.h"
#include "tests/optim/trial.h"

namespace longstride::optimizer_test {
namespace {

using kernels::ScheduleKind;
using testing::normals;
using testing::OwnedTensor;
using testing::Trial;

Optimizer::Config config() {
  Optimizer::Config c;
  c.lr = 0.01;
  c.warmup = 4;
  c.steps = 20;
  c.weight_decay = 0.1;
  c.clip = 1.0;
  c.ema = 0.9;
  return c;
}

// One weight of Adam, written out from the definitions.
struct Scalar {
  double w, m = 0, v = 0, ema = 0;
  void update(double g, double lr, std::int64_t t, double decay) {
    m = 0.9 * m + 0.1 * g;
    v = 0.999 * v + 0.001 * g * g;
    const double m_hat = m / (1 - std::pow(0.9, t)), v_hat = v / (1 - std::pow(0.999, t));
    w = w - lr * (m_hat / (std::sqrt(v_hat) + 1e-8) + decay * w);
    const double keeps = std::min(0.9, (1.0 + static_cast<double>(t)) / (10.0 + static_cast<double>(t)));
    ema = keeps * ema + (1 - keeps) * w;
  }
};

void expect_equal_to_scalars(Dtype dtype, double tolerance) {
  constexpr std::int64_t count = 5001, decayed = 3000;
  Trial run(config(), count, decayed, dtype);
  std::vector<Scalar> reference;
  for (std::int64_t i = 0; i < count; ++i) reference.push_back({run.weights.at(i), 0, 0, run.weights.at(i)});
  for (std::int64_t t = 1; t <= 6; ++t) {
    const OwnedTensor gradient =
        normals({count}, dtype, 10 + static_cast<std::uint32_t>(t), 0.005 * static_cast<double>(t));
    double norm = 0;
    for (std::int64_t i = 0; i < count; ++i) norm += gradient.at(i) * gradient.at(i);
    norm = std::sqrt(norm);
    const double lr = 0.01 * std::min(1.0, t / 4.0) * 0.5 * (1 + std::cos(3.14159265358979323846 * (t - 1) / 20.0));
    const double coefficient = std::min(1.0, 1.0 / norm);
    run.advance(gradient);
    EXPECT_NEAR(run.optimizer.scalars()->gradient_norm, norm, 1e-9 * norm);
    EXPECT_NEAR(run.optimizer.scalars()->clip_coefficient, coefficient, 1e-9);
    EXPECT_NEAR(run.optimizer.scalars()->learning_rate, lr, 1e-15);
    for (std::int64_t i = 0; i < count; ++i) {
      Scalar& r = reference[static_cast<std::size_t>(i)];
      r.update(coefficient * gradient.at(i), lr, t, i < decayed ? 0.1 : 0.0);
      ASSERT_NEAR(run.weights.at(i), r.w, tolerance) << "weight " << i << " after step " << t;
      ASSERT_NEAR(run.ema.at(i), r.ema, tolerance) << "average " << i << " after step " << t;
      ASSERT_NEAR(run.m.at(i), r.m, tolerance);
      ASSERT_NEAR(run.v.at(i), r.v, tolerance);
    }
  }
}

TEST(Optimizer, EqualsAdamWrittenOutInDouble) { expect_equal_to_scalars(Dtype::f64, 1e-13); }
TEST(Optimizer, EqualsAdamWrittenOutToRoundingInFloat) { expect_equal_to_scalars(Dtype::f32, 2e-6); }

TEST(Optimizer, ClipsOnlyNormsAboveTheLimit) {
  Trial run(config(), 100, 100, Dtype::f64);
  run.advance(normals({100}, Dtype::f64, 5, 1e-3));
  EXPECT_EQ(run.optimizer.scalars()->clip_coefficient, 1.0);
  run.advance(normals({100}, Dtype::f64, 5, 10));
  EXPECT_LT(run.optimizer.scalars()->clip_coefficient, 1.0);
  Optimizer::Config c = config();
  c.clip = 0;
  Trial unclipped(c, 100, 100, Dtype::f64);
  unclipped.advance(normals({100}, Dtype::f64, 5, 10));
  EXPECT_EQ(unclipped.optimizer.scalars()->clip_coefficient, 1.0);
  EXPECT_GT(unclipped.optimizer.scalars()->gradient_norm, 50);
}

// Rates so high that weights pass both limits.
TEST(Optimizer, WeightsWithLimitsStayWithinThemAndSoDoesTheirAverage) {
  for (const OptimizerKind kind : {OptimizerKind::adam, OptimizerKind::adagrad}) {
    Optimizer::Config c = config();
    c.kind = kind;
    c.lr = 0.5;
    c.clip = 0;
    constexpr std::int64_t count = 300, begin = 210, end = 290;
    const OptimizerParts parts = {.orthogonalised = {},
                                  .tensors = {},
                                  .factored = {},
                                  .limited = {{{begin, 30}, {0, 1}}, {{begin + 30, 50}, {-0.25, 0.25}}}};
    Trial run(c, count, 200, Dtype::f32, parts), free(c, count, 200, Dtype::f32);
    bool below = false, above = false;
    for (std::uint32_t t = 0; t < 5; ++t) {
      const OwnedTensor gradient = normals({count}, Dtype::f32, 30 + t);
      run.advance(gradient);
      free.advance(gradient);
      for (std::int64_t i = 0; i < count; ++i) {
        if (i < begin || i >= end) {
          ASSERT_EQ(run.weights.at(i), free.weights.at(i)) << i;
          continue;
        }
        const double low = i < begin + 30 ? 0 : -0.25, high = i < begin + 30 ? 1 : 0.25;
        ASSERT_GE(run.weights.at(i), low) << i;
        ASSERT_LE(run.weights.at(i), high) << i;
        below = below || run.weights.at(i) == low;
        above = above || run.weights.at(i) == high;
      }
    }
    EXPECT_TRUE(below && above);
  }
}

// The average of weights that were above their limit at the start moves towards what the limit leaves of them.
TEST(Optimizer, TheAverageIsOfWeightsWithinTheirLimits) {
  Optimizer::Config c = config();
  c.lr = 1e-30;
  c.lr_floor = 0;
  Trial run(c, 100, 0, Dtype::f64,
            {.orthogonalised = {}, .tensors = {}, .factored = {}, .limited = {{{0, 100}, {0, 1}}}});
  const OwnedTensor before = run.weights;
  run.advance(normals({100}, Dtype::f64, 5));
  for (std::int64_t i = 0; i < 100; ++i)
    EXPECT_NEAR(run.ema.at(i), (2 * before.at(i) + 9 * std::clamp(before.at(i), 0.0, 1.0)) / 11, 1e-15) << i;
}

TEST(Optimizer, WeightsWithoutGradientOrDecayStayAsTheyAre) {
  Trial run(config(), 300, 200, Dtype::f32);
  const OwnedTensor before = run.weights;
  run.advance(testing::zeros({300}, Dtype::f32));
  for (std::int64_t i = 0; i < 300; ++i) EXPECT_EQ(run.weights.at(i) == before.at(i), i >= 200) << i;
}

TEST(Optimizer, GivesTheSameBitsForAnyNumberOfThreads) {
  const int threads = omp_get_max_threads();
  std::vector<OwnedTensor> results;
  for (int n : {1, 2, 3}) {
    omp_set_num_threads(n);
    Trial run(config(), 100003, 70000, Dtype::f32);
    for (std::uint32_t t = 0; t < 3; ++t) run.advance(normals({100003}, Dtype::f32, 20 + t));
    results.push_back(run.weights);
    results.push_back(run.ema);
  }
  omp_set_num_threads(threads);
  for (std::size_t i = 2; i < results.size(); ++i) EXPECT_EQ(results[i], results[i % 2]);
}

// A gradient with one element that is not finite.
OwnedTensor overflowed(std::int64_t count, double value) {
  OwnedTensor gradient = normals({count}, Dtype::f32, 5);
  gradient.set(count / 2, value);
  return gradient;
}

TEST(Optimizer, AGradientThatIsNotFiniteChangesNothingButTheScalars) {
  for (const double value : {std::numeric_limits<double>::infinity(), std::numeric_limits<double>::quiet_NaN()}) {
    Trial run(config(), 300, 200, Dtype::f32);
    run.advance(normals({300}, Dtype::f32, 6));
    EXPECT_EQ(run.optimizer.scalars()->finite, 1);
    const OwnedTensor weights = run.weights, m = run.m, v = run.v, ema = run.ema;
    run.advance(overflowed(300, value));
    run.advance(overflowed(300, value));
    EXPECT_EQ(run.weights, weights);
    EXPECT_EQ(run.m, m);
    EXPECT_EQ(run.v, v);
    EXPECT_EQ(run.ema, ema);
    EXPECT_EQ(run.optimizer.scalars()->finite, 0);
    EXPECT_EQ(run.optimizer.scalars()->skipped_in_row, 2);
    run.advance(normals({300}, Dtype::f32, 7));
    EXPECT_FALSE(run.weights == weights);
    EXPECT_EQ(run.optimizer.scalars()->skipped_in_row, 0);
    EXPECT_EQ(run.optimizer.scalars()->skipped, 2);
    EXPECT_EQ(run.optimizer.scalars()->loss_scale, 1) << "not dynamic";
  }
}

// The weights stay at 1 from the first update on, so the average says how much it keeps of its first value.
TEST(Optimizer, TheAverageOfAShortRunForgetsTheFirstWeights) {
  Optimizer::Config c = config();
  c.ema = 0.999;
  c.lr = 1e-30;
  Trial run(c, 100, 0, Dtype::f32);
  double kept = 1;
  for (std::int64_t i = 0; i < 100; ++i) run.weights.set(i, 1);
  for (std::int64_t t = 1; t <= 60; ++t) {
    run.advance(overflowed(100, HUGE_VAL));  // a step that is skipped does not count
    run.advance(normals({100}, Dtype::f32, 5));
    kept *= (1 + static_cast<double>(t)) / (10 + static_cast<double>(t));
  }
  EXPECT_LT(kept, 1e-5);
  for (std::int64_t i = 0; i < 100; ++i) EXPECT_NEAR(run.ema.at(i), 1, 1e-4) << i;
}

// As in PyTorch, whose GradScaler does not call the optimizer then: Adam's t counts updates.
TEST(Optimizer, AfterASkippedStepItContinuesAsIfThatStepHadNotBeen) {
  Optimizer::Config c = config();
  c.schedule = ScheduleKind::constant;
  c.warmup = 0;
  Trial run(c, 300, 200, Dtype::f32), straight(c, 300, 200, Dtype::f32);
  run.advance(overflowed(300, HUGE_VAL));
  for (std::uint32_t t = 0; t < 3; ++t) {
    run.advance(normals({300}, Dtype::f32, 6 + t));
    if (t == 1) run.advance(overflowed(300, HUGE_VAL));
    straight.advance(normals({300}, Dtype::f32, 6 + t));
    EXPECT_EQ(run.weights, straight.weights);
    EXPECT_EQ(run.ema, straight.ema);
  }
}

// The scales are powers of two, so the bits are the same.
TEST(Optimizer, GradientsTimesTheLossScaleGiveTheSameWeights) {
  Optimizer::Config scaled = config();
  scaled.dynamic_loss_scale = true;
  Trial plain(config(), 1000, 500, Dtype::f64), run(scaled, 1000, 500, Dtype::f64);
  EXPECT_EQ(run.optimizer.scalars()->loss_scale, kernels::LossScale::first);
  for (std::uint32_t t = 0; t < 4; ++t) {
    const OwnedTensor gradient = normals({1000}, Dtype::f64, 20 + t);
    OwnedTensor times = gradient;
    for (std::int64_t i = 0; i < 1000; ++i)
      times.set(i, gradient.at(i) * static_cast<double>(run.optimizer.scalars()->loss_scale));
    plain.advance(gradient);
    run.advance(times);
    EXPECT_EQ(run.optimizer.scalars()->gradient_norm, plain.optimizer.scalars()->gradient_norm);
  }
  EXPECT_EQ(run.weights, plain.weights);
}

TEST(Optimizer, TheLossScaleHalvesOnOverflowAndDoublesAfterEnoughGoodSteps) {
  Optimizer::Config c = config();
  c.dynamic_loss_scale = true;
  Trial run(c, 10, 0, Dtype::f32);
  const kernels::OptimizerScalars& s = *run.optimizer.scalars();
  const OwnedTensor good = normals({10}, Dtype::f32, 5), bad = overflowed(10, HUGE_VAL);
  run.advance(bad);
  EXPECT_EQ(s.loss_scale, kernels::LossScale::first / 2);
  for (std::int64_t i = 0; i + 1 < kernels::LossScale::interval; ++i) run.advance(good);
  EXPECT_EQ(s.loss_scale, kernels::LossScale::first / 2);
  run.advance(good);
  EXPECT_EQ(s.loss_scale, kernels::LossScale::first);
  EXPECT_EQ(s.good_steps, 0);
  run.advance(good);
  run.advance(bad);
  EXPECT_EQ(s.good_steps, 0) << "an overflow restarts the count";
  for (int i = 0; i < 40; ++i) run.advance(bad);
  EXPECT_EQ(s.loss_scale, 1);
  run.optimizer.resume(run.ctx, kernels::LossScale::most, kernels::LossScale::interval - 1, 0);
  run.advance(good);
  EXPECT_EQ(s.loss_scale, kernels::LossScale::most);
}

TEST(Optimizer, PlannedScratchIsWhatAStepTakes) {
  Arena planned;
  Context plan;
  plan.arena = &planned;
  const Optimizer::Config c = config();
  constexpr std::int64_t count = 100003;
  const Tensor flat(nullptr, Dtype::f32, {count});
  const Tensor scalars(nullptr, Dtype::u8, {static_cast<std::int64_t>(Optimizer::scalars_bytes)});
  Optimizer optimizer(c, {flat, flat, flat, scalars}, {{0, count}});
  testing::take_step(optimizer, plan, flat, flat);
  Trial run(c, count, 0, Dtype::f32);
  run.advance(normals({count}, Dtype::f32, 5));
  EXPECT_GT(planned.high_water(), 0u);
  EXPECT_EQ(planned.high_water(), run.ctx.arena->high_water());
}

TEST(Optimizer, SettingsOutOfRangeAreUserErrors) {
  const auto refuse = [](auto&& change) {
    Optimizer::Config c = config();
    change(c);
    EXPECT_THROW(Trial(c, 10, 0, Dtype::f32), UserError);
  };
  refuse([](auto& c) { c.lr = 0; });
  refuse([](auto& c) { c.steps = 0; });
  refuse([](auto& c) { c.warmup = -1; });
  refuse([](auto& c) { c.lr_floor = -1; });
  refuse([](auto& c) { c.lr_floor = c.lr; });
  refuse([](auto& c) { c.schedule = ScheduleKind::warmup_stable_decay; });
  refuse([](auto& c) { c.schedule = ScheduleKind::reciprocal_sqrt; });
  refuse([](auto& c) { c.beta1 = 1; });
  refuse([](auto& c) { c.beta2 = 1; });
  refuse([](auto& c) { c.epsilon = 0; });
  refuse([](auto& c) { c.weight_decay = -1; });
  refuse([](auto& c) { c.clip = -1; });
  refuse([](auto& c) { c.ema = 1; });
}

TEST(Schedule, WarmsUpLinearlyOnACosineOfTheWholeRun) {
  const kernels::Schedule s{2.0, 10, 100};
  EXPECT_DOUBLE_EQ(kernels::learning_rate(s, 0), 2.0 * 0.1);
  EXPECT_DOUBLE_EQ(kernels::learning_rate(s, 4), 2.0 * 0.5 * 0.5 * (1 + std::cos(3.14159265358979323846 * 0.04)));
  EXPECT_DOUBLE_EQ(kernels::learning_rate(s, 50), 2.0 * 0.5);
  EXPECT_NEAR(kernels::learning_rate(s, 75), 2.0 * 0.14644660940672624, 1e-12);
  EXPECT_GT(kernels::learning_rate(s, 99), 0.0);
  EXPECT_EQ(kernels::learning_rate(s, 100), 0.0);
  EXPECT_EQ(kernels::learning_rate(s, 1000), 0.0);
}

// Bit for bit: a floor of 0 must not change what runs without one have computed.
TEST(Schedule, TheCosineToZeroIsTheFormulaWithoutAFloor) {
  for (const double peak : {2.0, 3.5e-4, 1e-3, 0.3})
    for (const std::int64_t warmup : {0, 1, 7, 10}) {
      const kernels::Schedule s{peak, warmup, 97};
      for (std::int64_t step = 0; step < 97; ++step) {
        const double at = static_cast<double>(step), warm = (at + 1) / static_cast<double>(warmup);
        const double ramp = warmup > 0 && warm < 1 ? warm : 1.0;
        const double expected = peak * ramp * 0.5 * (1 + std::cos(3.14159265358979323846 * at / 97.0));
        EXPECT_EQ(kernels::learning_rate(s, step), expected) << peak << " " << warmup << " " << step;
      }
    }
}

TEST(Schedule, TheCosineMayEndAtAFloor) {
  const kernels::Schedule s{2.0, 10, 100, ScheduleKind::cosine, 0.5};
  EXPECT_DOUBLE_EQ(kernels::learning_rate(s, 0), 0.1 * 2.0);
  EXPECT_DOUBLE_EQ(kernels::learning_rate(s, 50), 1.25);
  EXPECT_NEAR(kernels::learning_rate(s, 75), 0.5 + 1.5 * 0.14644660940672624, 1e-12);
  EXPECT_NEAR(kernels::learning_rate(s, 99), 0.5, 1e-3);
  EXPECT_GT(kernels::learning_rate(s, 99), 0.5);
  EXPECT_EQ(kernels::learning_rate(s, 100), 0.0);
}

TEST(Schedule, ConstantStaysAtThePeakAfterTheWarmup) {
  const kernels::Schedule s{2.0, 10, 100, ScheduleKind::constant};
  EXPECT_DOUBLE_EQ(kernels::learning_rate(s, 4), 1.0);
  for (std::int64_t step = 9; step < 100; ++step) EXPECT_EQ(kernels::learning_rate(s, step), 2.0) << step;
  EXPECT_EQ(kernels::learning_rate(s, 100), 0.0);
}

TEST(Schedule, WarmupStableDecayFallsLinearlyInItsLastSteps) {
  const kernels::Schedule s{2.0, 10, 100, ScheduleKind::warmup_stable_decay, 0.0, 20};
  EXPECT_DOUBLE_EQ(kernels::learning_rate(s, 4), 1.0);
  for (std::int64_t step = 9; step <= 80; ++step) EXPECT_EQ(kernels::learning_rate(s, step), 2.0) << step;
  EXPECT_DOUBLE_EQ(kernels::learning_rate(s, 81), 1.9);
  EXPECT_DOUBLE_EQ(kernels::learning_rate(s, 90), 1.0);
  EXPECT_DOUBLE_EQ(kernels::learning_rate(s, 99), 0.1);
  EXPECT_EQ(kernels::learning_rate(s, 100), 0.0);
  const kernels::Schedule floored{2.0, 10, 100, ScheduleKind::warmup_stable_decay, 0.5, 20};
  EXPECT_EQ(kernels::learning_rate(floored, 80), 2.0);
  EXPECT_DOUBLE_EQ(kernels::learning_rate(floored, 90), 1.25);
  EXPECT_DOUBLE_EQ(kernels::learning_rate(floored, 99), 0.5 + 1.5 / 20);
}

TEST(Schedule, WithoutWarmupStartsAtThePeak) { EXPECT_EQ(kernels::learning_rate({2.0, 0, 100}, 0), 2.0); }

TEST(Schedule, WarmupLongerThanTheRunNeverReachesThePeak) {
  for (std::int64_t s = 0; s < 100; ++s) EXPECT_LT(kernels::learning_rate({2.0, 1000, 100}, s), 0.2) << s;
}

TEST(Schedule, ReciprocalSqrtFallsAfterItsFirstStep) {
  const kernels::Schedule s{2.0, 10, 1000, ScheduleKind::reciprocal_sqrt, 0.0, 0, 16};
  EXPECT_DOUBLE_EQ(kernels::learning_rate(s, 4), 1.0);
  for (std::int64_t step = 9; step < 16; ++step) EXPECT_EQ(kernels::learning_rate(s, step), 2.0) << step;
  EXPECT_LT(kernels::learning_rate(s, 16), 2.0);
  EXPECT_DOUBLE_EQ(kernels::learning_rate(s, 63), 1.0);
  EXPECT_DOUBLE_EQ(kernels::learning_rate(s, 255), 0.5);
  EXPECT_EQ(kernels::learning_rate(s, 1000), 0.0);
  const kernels::Schedule floored{2.0, 10, 1000, ScheduleKind::reciprocal_sqrt, 0.5, 0, 16};
  EXPECT_DOUBLE_EQ(kernels::learning_rate(floored, 63), 1.25);
}

}  // namespace
}  // namespace longstride::optimizer_test
