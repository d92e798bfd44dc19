// Stages with batches, windows and learning rates of their own, as the phases of Longformer's training have them.
#include <cmath>

#include "framework/models/decoder/decoder.h"
#include "framework/train/sample/training_samples.h"
#include "tests/support/distance_toys.h"
#include "tests/support/stream_run.h"
#include "tests/support/temporary_directory.h"

namespace longstride::test {
namespace {

DistanceToy toy(std::int64_t positions = 48, double dropout = 0.3) {
  DistanceToy c = longformer_toy();
  c.context = positions;
  c.dropout = dropout;
  return c;
}

TrainConfig train_config(std::int64_t rows, std::int64_t micro = 0) {
  TrainConfig c;
  c.steps = 20;
  c.global_batch = rows;
  c.micro_batch = micro;
  c.lr = 1e-2;
  c.warmup = 2;
  return c;
}

// Contexts that do not divide the longest, a batch that falls, windows that grow.
TrainConfig phased() {
  TrainConfig c = train_config(2, 1);
  c.schedule = kernels::ScheduleKind::constant;
  c.stages = {{2, 10, 4e-3, 12, 6, {2}}, {4, 20, 2e-3, 6, 2, {3, 3, 4}}, {6, 48, 1e-3, 0, 0, {4}}};
  return c;
}

// The rows of a step follow from its number.
struct PhasedRun {
  PhasedRun(const TrainConfig& settings, const DistanceToy& config)
      : train(settings), model(config), comm(make_single_communicator()), step(model, train, *comm, Device::cpu) {}

  void go(std::int64_t steps) {
    for (const std::int64_t end = step.step() + steps; step.step() < end;)
      step.run(toy_tokens(step.shape_at(step.step()).positions(), 40 + static_cast<std::uint64_t>(step.step())).data());
  }
  std::string bits() {
    std::string all;
    step.with_host_tensors([&](const TrainingTensors& t) {
      for (const Tensor& flat : {t.masters, t.m, t.v}) all.append(flat.as<char>(), flat.bytes());
    });
    return all;
  }
  void save(const std::string& run) {
    CheckpointState state;
    step.describe(step.report(), state);
    step.with_host_tensors([&](const TrainingTensors& t) { save_checkpoint(run, state, t, 0); });
  }

  TrainConfig train;
  Decoder model;
  std::unique_ptr<Communicator> comm;
  TrainingStep step;
};

TEST(Phases, HaveTheRowsOfTheirSettings) {
  const TrainConfig c = phased();
  EXPECT_EQ(shape_at(c, 1, 48), (StepShape{12, 6, 10, 1}));
  EXPECT_EQ(shape_at(c, 2, 48), (StepShape{6, 2, 20, 1}));
  EXPECT_EQ(shape_at(c, 5, 48), (StepShape{2, 1, 48, 1}));
  EXPECT_EQ(shape_at(c, 6, 48), (StepShape{2, 1, 48, 1}));
  EXPECT_EQ(positions_before(c, 0, 48), 0);
  EXPECT_EQ(positions_before(c, 3, 48), 2 * 120 + 120);
  EXPECT_EQ(positions_before(c, 9, 48), 2 * 120 + 2 * 120 + 5 * 96);
  TrainConfig cut = train_config(4);
  cut.stages = {{3, 12}};
  EXPECT_EQ(shape_at(cut, 0, 48), (StepShape{4, 0, 48, 4}));
  EXPECT_EQ(shape_at(cut, 0, 48).sequence(), 12);
}

// A phase trains as a run does that has its settings alone.
TEST(Phases, TrainAsARunWithTheSameSettingsDoes) {
  TrainConfig plain = train_config(12, 6);
  plain.schedule = kernels::ScheduleKind::constant;
  plain.lr = 4e-3;
  DistanceToy narrow = toy(10);
  narrow.distance.window = {2};
  PhasedRun in_phase(phased(), toy()), alone(plain, narrow);
  for (PhasedRun* run : {&in_phase, &alone}) {
    run->step.start();
    run->go(2);
  }
  EXPECT_TRUE(in_phase.bits() == alone.bits());
  EXPECT_EQ(in_phase.step.report().loss, alone.step.report().loss);
  EXPECT_EQ(in_phase.step.tokens_seen(), alone.step.tokens_seen());
  for (PhasedRun* run : {&in_phase, &alone}) run->go(1);
  EXPECT_FALSE(in_phase.bits() == alone.bits()) << "the second phase is like the first";
}

// Windows apply to a phase and end with it.
TEST(Phases, SetWindowsUntilTheyEnd) {
  TrainConfig windows = train_config(3);
  windows.stages = {{2, 48, 0, 0, 0, {3}}};
  DistanceToy narrow = toy();
  narrow.distance.window = {3};
  PhasedRun staged(windows, toy()), always(train_config(3), narrow), after(train_config(3), toy());
  const testing::TemporaryDirectory directory;
  for (PhasedRun* run : {&staged, &always}) {
    run->step.start();
    run->go(2);
  }
  EXPECT_TRUE(staged.bits() == always.bits());
  staged.save(directory.path());
  after.step.resume(directory.path());
  for (PhasedRun* run : {&staged, &always, &after}) run->go(1);
  EXPECT_TRUE(staged.bits() == after.bits());
  EXPECT_FALSE(staged.bits() == always.bits());
}

// All predictions are the same before anything is learned, in phases of any size.
TEST(Phases, DivideLossesByTheirOwnPositions) {
  TrainConfig c = phased();
  c.lr = still;
  for (Stage& stage : c.stages) stage.lr = still;
  PhasedRun run(c, toy());
  run.step.start();
  for (int step = 0; step < 8; ++step) {
    run.go(1);
    EXPECT_NEAR(run.step.report().loss, std::log(256.0), 1e-6) << step;
  }
  EXPECT_NEAR(run.step.take_mean_loss(), std::log(256.0), 1e-6);
}

TEST(Phases, AResumedRunEndsInTheSameBits) {
  PhasedRun straight(phased(), toy());
  straight.step.start();
  straight.go(8);
  for (const std::int64_t at : {1, 2, 3, 5, 6, 7}) {
    const testing::TemporaryDirectory directory;
    PhasedRun first(phased(), toy()), second(phased(), toy());
    first.step.start();
    first.go(at);
    first.save(directory.path());
    second.step.resume(directory.path());
    second.go(8 - at);
    EXPECT_TRUE(second.bits() == straight.bits()) << at;
  }
}

TEST(Phases, TakeExactlyTheMemoryOfTheLargest) {
  for (const DistanceToy& config : Toys<DistanceToy>::recompute_policies(toy())) {
    PhasedRun run(phased(), config);
    run.step.start();
    run.go(7);
    run.step.report();
    const MemoryPlan& plan = run.step.plan();
    EXPECT_EQ(static_cast<std::int64_t>(run.step.state().bytes()), plan.block());
    EXPECT_EQ(static_cast<std::int64_t>(run.step.state().arena().high_water()), plan.activations);
    EXPECT_EQ(static_cast<std::int64_t>(run.step.state().arena().tape_high_water()), plan.tape);
    Decoder planned(config);
    EXPECT_GE(plan.activations, plan_memory(planned, train_config(2, 1), 1).activations);
  }
}

// A stage's windows may be wider than the model's, and then take more memory to generate with.
TEST(Phases, LeaveRoomForSamplesInTheirWindows) {
  DistanceToy narrow = toy();
  narrow.distance.window = {2};
  TrainConfig c = train_config(1);
  c.sample_every = 1;
  c.sample_count = 32;
  c.stages = {{2, 48, 0, 0, 0, {48}}};
  PhasedRun run(c, narrow);
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
