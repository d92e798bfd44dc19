// Context that grows in stages: a stage trains on shorter sequences of the same bytes.
#include "tests/train/trained.h"

namespace longstride::test {
namespace {

constexpr std::int64_t context = 48;

DecoderConfig config_of(std::int64_t positions, double dropout) {
  DecoderConfig c = toy_config();
  c.context = positions;
  c.dropout = dropout;
  c.attention.integration = kernels::Integration::merged;
  c.attention.parts = {kernels::PartKind::local, kernels::PartKind::column};
  c.attention.window = 5;
  c.attention.stride = 48;  // one row of the position tables at any context
  return c;
}

TrainConfig train_config(std::int64_t rows, std::int64_t micro = 0) {
  TrainConfig c;
  c.steps = 20;
  c.global_batch = rows;
  c.micro_batch = micro;
  c.lr = 1e-2;
  c.warmup = 2;
  c.ema = 0.9;
  return c;
}

TEST(Stages, AStageIsTheTrainingOfAsManyShorterSequencesOnTheSameBytes) {
  for (const double dropout : {0.0, 0.3}) {
    TrainConfig staged = train_config(4, 2);
    staged.stages = {{3, 12}, {5, 24}};
    Trained run(staged, config_of(context, dropout));
    run.step.start();
    run.go(3);
    Trained shorter(train_config(16, 8), config_of(12, dropout));
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
  TrainConfig staged = train_config(4);
  staged.stages = {{1, 12}};
  const testing::TemporaryDirectory directory;
  Trained run(staged, config_of(context, 0.3)), whole(train_config(4), config_of(context, 0.3));
  run.step.start();
  run.go(1);
  run.save(directory.path());
  whole.step.resume(directory.path());
  for (Trained* r : {&run, &whole}) r->go(3);
  EXPECT_EQ(run.bits(), whole.bits());
}

TEST(Stages, ARunResumedBeforeOrAtABorderEndsInTheSameBits) {
  TrainConfig staged = train_config(4, 1);
  staged.stages = {{3, 12}, {5, 24}};
  Trained straight(staged, config_of(context, 0.3));
  straight.step.start();
  straight.go(7);
  for (const std::int64_t at : {2, 3, 5}) {
    const testing::TemporaryDirectory directory;
    Trained first(staged, config_of(context, 0.3)), second(staged, config_of(context, 0.3));
    first.step.start();
    first.go(at);
    EXPECT_EQ(first.save(directory.path()).tokens_seen, at * 4 * context);
    second.step.resume(directory.path());
    second.go(7 - at);
    EXPECT_EQ(second.bits(), straight.bits()) << at;
  }
}

TEST(Stages, MayHaveLearningRatesOfTheirOwn) {
  TrainConfig staged = train_config(4);
  staged.schedule = kernels::ScheduleKind::constant;
  staged.warmup = 0;
  staged.stages = {{2, 12, 4e-3}, {4, 12, 2e-3}, {6, 48, 5e-3}};
  const testing::TemporaryDirectory directory;
  Trained run(staged, config_of(context, 0.3)), resumed(staged, config_of(context, 0.3));
  run.step.start();
  const double expected[] = {4e-3, 4e-3, 2e-3, 2e-3, 5e-3, 5e-3, 1e-2, 1e-2};
  for (int step = 0; step < 8; ++step) {
    if (step == 3) run.save(directory.path());
    run.go(1);
    EXPECT_EQ(run.step.report().scalars.learning_rate, expected[step]) << step;
  }
  resumed.step.resume(directory.path());
  resumed.go(5);
  EXPECT_EQ(resumed.bits(), run.bits());
}

TEST(Stages, TakeExactlyTheMemoryOfTheLargest) {
  for (const Recompute recompute : {Recompute::none, Recompute::selective, Recompute::block}) {
    DecoderConfig config = config_of(context, 0.1);
    config.recompute = recompute;
    TrainConfig staged = train_config(4, 2);
    staged.stages = {{1, 12}, {2, 24}};
    Trained run(staged, config);
    run.step.start();
    run.go(3);
    Decoder planned(config);
    const MemoryPlan plan = plan_memory(planned, staged, 1);
    const TrainingState& state = run.step.state();
    EXPECT_EQ(static_cast<std::int64_t>(run.step.state().arena().high_water()), plan.activations);
    EXPECT_EQ(static_cast<std::int64_t>(run.step.state().arena().tape_high_water()), plan.tape);
    EXPECT_EQ(static_cast<std::int64_t>(state.bytes()), plan.block());
    EXPECT_GE(plan.activations, plan_memory(planned, train_config(4, 2), 1).activations);
  }
}

}  // namespace
}  // namespace longstride::test
