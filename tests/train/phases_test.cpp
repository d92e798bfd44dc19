// Stages with batches, windows and learning rates of their own, as the phases of Longformer's training have them.
#include <cmath>

#include "framework/train/sample/training_samples.h"
#include "tests/support/stream_run.h"
#include "tests/train/ways.h"

namespace longstride::test {
namespace {

TEST(Phases, HaveTheRowsOfTheirSettings) {
  const TrainConfig c = phased();
  EXPECT_EQ(shape_at(c, 1, 48), (StepShape{12, 6, 10, 1}));
  EXPECT_EQ(shape_at(c, 2, 48), (StepShape{6, 2, 20, 1}));
  EXPECT_EQ(shape_at(c, 5, 48), (StepShape{2, 1, 48, 1}));
  EXPECT_EQ(shape_at(c, 6, 48), (StepShape{2, 1, 48, 1}));
  EXPECT_EQ(positions_before(c, 0, 48), 0);
  EXPECT_EQ(positions_before(c, 3, 48), 2 * 120 + 120);
  EXPECT_EQ(positions_before(c, 9, 48), 2 * 120 + 2 * 120 + 5 * 96);
  TrainConfig cut = way_config(4);
  cut.stages = {{3, 12}};
  EXPECT_EQ(shape_at(cut, 0, 48), (StepShape{4, 0, 48, 4}));
  EXPECT_EQ(shape_at(cut, 0, 48).sequence(), 12);
}

// A phase trains as a run does that has its settings alone.
TEST(Phases, TrainAsARunWithTheSameSettingsDoes) {
  TrainConfig plain = way_config(12, 6);
  plain.schedule = kernels::ScheduleKind::constant;
  plain.lr = 4e-3;
  DistanceToy narrow = phased_model(10);
  narrow.distance.window = {2};
  Trained in_phase(phased(), phased_model()), alone(plain, narrow);
  for (Trained* run : {&in_phase, &alone}) {
    run->step.start();
    run->go(2);
  }
  EXPECT_TRUE(in_phase.bits() == alone.bits());
  EXPECT_EQ(in_phase.step.report().loss, alone.step.report().loss);
  EXPECT_EQ(in_phase.step.tokens_seen(), alone.step.tokens_seen());
  for (Trained* run : {&in_phase, &alone}) run->go(1);
  EXPECT_FALSE(in_phase.bits() == alone.bits()) << "the second phase is like the first";
}

// Windows apply to a phase and end with it.
TEST(Phases, SetWindowsUntilTheyEnd) {
  TrainConfig windows = way_config(3);
  windows.stages = {{2, 48, 0, 0, 0, {3}}};
  DistanceToy narrow = phased_model();
  narrow.distance.window = {3};
  Trained staged(windows, phased_model()), always(way_config(3), narrow), after(way_config(3), phased_model());
  const testing::TemporaryDirectory directory;
  for (Trained* run : {&staged, &always}) {
    run->step.start();
    run->go(2);
  }
  EXPECT_TRUE(staged.bits() == always.bits());
  staged.save(directory.path());
  after.step.resume(directory.path());
  for (Trained* run : {&staged, &always, &after}) run->go(1);
  EXPECT_TRUE(staged.bits() == after.bits());
  EXPECT_FALSE(staged.bits() == always.bits());
}

// All predictions are the same before anything is learned, in phases of any size.
TEST(Phases, DivideLossesByTheirOwnPositions) {
  TrainConfig c = phased();
  c.lr = still;
  for (Stage& stage : c.stages) stage.lr = still;
  Trained run(c, phased_model());
  run.step.start();
  for (int step = 0; step < 8; ++step) {
    run.go(1);
    EXPECT_NEAR(run.step.report().loss, std::log(256.0), 1e-6) << step;
  }
  EXPECT_NEAR(run.step.take_mean_loss(), std::log(256.0), 1e-6);
}

// A stage's windows may be wider than the model's, and then take more memory to generate with.
TEST(Phases, LeaveRoomForSamplesInTheirWindows) {
  DistanceToy narrow = phased_model();
  narrow.distance.window = {2};
  TrainConfig c = way_config(1);
  c.sample_every = 1;
  c.sample_count = 32;
  c.stages = {{2, 48, 0, 0, 0, {48}}};
  Trained run(c, narrow);
  run.step.start();
  run.go(1);
  Context ctx = sampling_context(run.step.context());
  sample(run.model, ctx, training_samples(c, run.model));
  EXPECT_EQ(static_cast<std::int64_t>(run.step.state().arena().high_water()), run.step.plan().activations);
}

// Rows keep what they remember through phases that change neither their number nor their length.
TEST(Phases, OfRowsThatRememberResumeInTheSameBits) {
  DistanceToy config = remembering_longformer_toy();
  config.dropout = 0.2;
  TrainConfig c = stream_training(0, 1e-2, 4);
  c.stages = {{2, config.context, 5e-3, 0, 2, {3}}, {4, config.context, 2e-3, 0, 1, {5}}};
  StreamRun straight(c, config);
  straight.step.start();
  straight.go(7);
  for (const std::int64_t at : {1, 2, 3, 6}) {
    const testing::TemporaryDirectory directory;
    StreamRun first(c, config), second(c, config);
    first.step.start();
    first.go(at);
    first.save(directory.path());
    second.step.resume(directory.path());
    second.go(7 - at);
    EXPECT_TRUE(second.bits() == straight.bits()) << at;
  }
}

}  // namespace
}  // namespace longstride::test
