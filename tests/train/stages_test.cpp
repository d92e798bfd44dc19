// Context that grows in stages: a stage trains on shorter sequences of the same bytes.
#include "tests/train/ways.h"

namespace longstride::test {
namespace {

constexpr std::int64_t context = 48;

TEST(Stages, AStageIsTheTrainingOfAsManyShorterSequencesOnTheSameBytes) {
  for (const double dropout : {0.0, 0.3}) {
    TrainConfig staged = way_config(4, 2);
    staged.stages = {{3, 12}, {5, 24}};
    Trained run(staged, staged_model(context, dropout));
    run.step.start();
    run.go(3);
    Trained shorter(way_config(16, 8), staged_model(12, dropout));
    shorter.step.start();
    shorter.go(3);
    EXPECT_EQ(run.bits(), shorter.bits()) << dropout;
    EXPECT_EQ(run.step.report().loss, shorter.step.report().loss);
    run.go(1);
    shorter.go(1);
    EXPECT_NE(run.bits(), shorter.bits()) << "the second stage is like the first";
  }
}

TEST(Stages, AfterTheLastBorderRowsAreWhole) {
  TrainConfig staged = way_config(4);
  staged.stages = {{1, 12}};
  const testing::TemporaryDirectory directory;
  Trained run(staged, staged_model(context, 0.3)), whole(way_config(4), staged_model(context, 0.3));
  run.step.start();
  run.go(1);
  run.save(directory.path());
  whole.step.resume(directory.path());
  for (Trained* r : {&run, &whole}) r->go(3);
  EXPECT_EQ(run.bits(), whole.bits());
}

TEST(Stages, MayHaveLearningRatesOfTheirOwn) {
  TrainConfig staged = way_config(4);
  staged.schedule = kernels::ScheduleKind::constant;
  staged.warmup = 0;
  staged.stages = {{2, 12, 4e-3}, {4, 12, 2e-3}, {6, 48, 5e-3}};
  Trained run(staged, staged_model(context, 0.3));
  run.step.start();
  const double expected[] = {4e-3, 4e-3, 2e-3, 2e-3, 5e-3, 5e-3, 1e-2, 1e-2};
  for (int step = 0; step < 8; ++step) {
    run.go(1);
    EXPECT_EQ(run.step.report().scalars.learning_rate, expected[step]) << step;
  }
}

}  // namespace
}  // namespace longstride::test
