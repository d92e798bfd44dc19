// The mean loss between two lines of metrics.
#include "framework/train/step/loss_mean.h"

#include "tests/train/trained.h"

namespace longstride::test {
namespace {

TEST(LossMean, IsThatOfTheStepsSinceItWasLastTaken) {
  TrainConfig config;
  config.steps = 20;
  config.global_batch = 4;
  config.lr = 1e-2;
  config.warmup = 2;
  Trained run(config, toy_config()), single(config, toy_config());
  run.step.start();
  single.step.start();
  for (const int steps : {1, 9, 3}) {  // more than there are copies, and fewer
    run.go(steps);
    double sum = 0;
    for (int i = 0; i < steps; ++i) {
      single.go(1);
      sum += single.step.report().loss;
    }
    EXPECT_NEAR(run.step.take_mean_loss(), sum / steps, 1e-12) << steps;
  }
  EXPECT_EQ(run.step.take_mean_loss(), 0);
  EXPECT_EQ(run.bits(), single.bits());
}

TEST(LossMean, BeginsAnewWhenARunResumes) {
  TrainConfig config;
  config.steps = 20;
  config.global_batch = 4;
  config.lr = 1e-2;
  const testing::TemporaryDirectory directory;
  Trained run(config, toy_config()), resumed(config, toy_config());
  run.step.start();
  run.go(3);
  run.save(directory.path());
  run.step.take_mean_loss();
  resumed.step.resume(directory.path());
  EXPECT_EQ(resumed.step.tokens_seen(), run.step.tokens_seen());
  for (Trained* r : {&run, &resumed}) r->go(2);
  EXPECT_EQ(resumed.step.take_mean_loss(), run.step.take_mean_loss());
}

}  // namespace
}  // namespace longstride::test
