// Spans that are learned: their loss, and the limits that every update ends with.
#include <cmath>

#include "tests/train/trained.h"

namespace longstride::test::spans_test {
namespace {

TrainConfig train_config(std::int64_t micro = 0) {
  TrainConfig c;
  c.steps = 40;
  c.global_batch = 4;
  c.micro_batch = micro;
  c.lr = 1e-3;
  c.warmup = 1;
  c.ema = 0.9;
  return c;
}

DecoderConfig with_loss(double loss, double initial = 0.3) {
  DecoderConfig c = spans_config();
  c.distance.span.loss = loss;
  c.distance.span.initial = initial;
  return c;
}

bool is_span(const Parameter& p) { return p.name.ends_with(".span"); }

std::vector<float> values_of(const Tensor& t) { return {t.as<const float>(), t.as<const float>() + t.count()}; }

// Whatever the number of micro-batches, a step adds loss * longest / heads to every span's gradient, and nothing else.
TEST(Spans, TheirLossCountsOncePerStep) {
  for (const std::int64_t micro : {4, 2, 1}) {
    Trained with(train_config(micro), with_loss(0.01)), without(train_config(micro), with_loss(0));
    for (Trained* run : {&with, &without}) {
      run->step.start();
      run->go(1);
    }
    const double longest = 14, heads = 2, layers = 2, slope = 0.01 * longest / heads;
    auto other = without.model.parameters().all().begin();
    for (const Parameter& p : with.model.parameters().all()) {
      const std::vector<float> a = values_of(p.gradient), b = values_of((other++)->gradient);
      for (std::size_t i = 0; i < a.size(); ++i)
        if (is_span(p))
          EXPECT_NEAR(a[i], static_cast<double>(b[i]) + slope, 1e-7 * slope) << p.name;
        else
          ASSERT_EQ(a[i], b[i]) << p.name;
    }
    const StepReport report = with.step.report();
    ASSERT_EQ(report.auxiliary.size(), 1u);
    EXPECT_NEAR(report.auxiliary[0], 0.01 * longest * layers * 0.3, 1e-7);
    EXPECT_EQ(report.loss, without.step.report().loss);
    EXPECT_TRUE(without.step.report().auxiliary.empty());
  }
}

TEST(Spans, AStepReportsTheLossOfTheSpansThatItBeganWith) {
  Trained run(train_config(2), with_loss(0.01));
  run.step.start();
  for (int i = 0; i < 4; ++i) {
    double sum = 0;
    for (const Parameter& p : run.model.parameters().all())
      if (is_span(p))
        for (const float z : values_of(p.master)) sum += static_cast<double>(z);
    run.go(1);
    EXPECT_NEAR(run.step.report().auxiliary[0], 0.01 * 14 / 2 * sum, 1e-9) << i;
  }
}

// Updates that are larger than the interval, in both directions.
TEST(Spans, StayBetween0And1AndReachBothEnds) {
  for (const OptimizerKind kind : {OptimizerKind::adam, OptimizerKind::adagrad, OptimizerKind::muon}) {
    for (const double loss : {0.0, 1.0}) {
      TrainConfig config = train_config();
      config.optimizer = kind;
      config.lr = 0.7;
      config.clip = 0.1;
      Trained run(config, with_loss(loss, 0.5));
      run.step.start();
      bool ends[2] = {};
      for (int i = 0; i < 6; ++i) {
        run.go(1);
        for (const Parameter& p : run.model.parameters().all()) {
          if (!is_span(p)) continue;
          const Tensor average = run.step.state().optimizer.ema.slice(0, p.offset, p.offset + p.shape.count());
          for (const Tensor& t : {p.master, average})
            for (const float z : values_of(t)) {
              ASSERT_GE(z, 0) << p.name;
              ASSERT_LE(z, 1) << p.name;
            }
          for (const float z : values_of(p.master)) {
            ends[0] = ends[0] || z == 0;
            ends[1] = ends[1] || z == 1;
          }
        }
      }
      EXPECT_TRUE(ends[0]) << loss;
      EXPECT_TRUE(ends[1] || loss > 0);
    }
  }
}

}  // namespace
}  // namespace longstride::test::spans_test
