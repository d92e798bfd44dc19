#include "framework/train/checkpoint/checkpoint.h"

#include <sys/resource.h>

#include <atomic>
#include <csignal>
#include <cstring>
#include <limits>
#include <set>
#include <thread>

#include "framework/core/files/files.h"
#include "framework/core/files/safetensors.h"
#include "tests/train/checkpoint/checkpoint_fixture.h"

namespace longstride {
namespace {

namespace fs = std::filesystem;
using testing::directory_of;
using testing::names_in;
using testing::resumed_step;
using testing::save;
using testing::SmallTraining;
using testing::state_at;
using testing::TemporaryDirectory;
using testing::user_error_of;

using Steps = std::vector<std::int64_t>;

class CheckpointOf : public ::testing::TestWithParam<Dtype> {};

TEST_P(CheckpointOf, RestoresEveryBitAndTheState) {
  const TemporaryDirectory run;
  SmallTraining saved(GetParam()), loaded(GetParam());
  saved.fill(0.1);
  save_checkpoint(run.path(), state_at(1000), saved.tensors(), 3);
  const CheckpointState state = load_newest_checkpoint(run.path(), loaded.tensors());
  EXPECT_EQ(loaded.bits(), saved.bits());
  EXPECT_EQ(state.step, 1000);
  EXPECT_EQ(state.seed, 18446744073709551615u);
  EXPECT_EQ(state.tokens_seen, 4096000);
  EXPECT_EQ(state.global_batch, 8);
  EXPECT_EQ(state.world_size, 4);
  EXPECT_EQ(state.recipe, "name: small\nmodel: {layers: 2}\n");
  EXPECT_FALSE(state.loss_scale.has_value());
  EXPECT_EQ(state.loss, 1.0 / 3);
}
INSTANTIATE_TEST_SUITE_P(Types, CheckpointOf, ::testing::Values(Dtype::f32, Dtype::f64));

TEST(Checkpoint, IsADirectoryOfFourDocumentedFiles) {
  const TemporaryDirectory run;
  save(run.path(), 1000);
  const std::string directory = run / "checkpoints/step-00001000";
  EXPECT_EQ(names_in(directory), (std::set<std::string>{"ema.safetensors", "model.safetensors",
                                                        "optimizer-00000-of-00001.safetensors", "state.json"}));
  const SafetensorsReader model(directory + "/model.safetensors");
  ASSERT_NE(model.find("embedding.weight"), nullptr);
  EXPECT_EQ(model.find("embedding.weight")->shape, (Shape{7, 5}));
  const SafetensorsReader optimizer(directory + "/optimizer-00000-of-00001.safetensors");
  EXPECT_NE(optimizer.find("m.norm.gain"), nullptr);
  EXPECT_NE(optimizer.find("v.output.weight"), nullptr);
}

TEST(Checkpoint, WithoutARunningAverageHasNoFileForOne) {
  const TemporaryDirectory run;
  SmallTraining training(Dtype::f32, 5, false), loaded(Dtype::f32, 5, false);
  training.fill(1);
  save_checkpoint(run.path(), state_at(1), training.tensors(), 3);
  EXPECT_FALSE(fs::exists(directory_of(run.path(), 1) + "/ema.safetensors"));
  load_newest_checkpoint(run.path(), loaded.tensors());
  EXPECT_EQ(loaded.bits(), training.bits());
  SmallTraining wants_average;
  EXPECT_EQ(
      user_error_of([&] { load_newest_checkpoint(run.path(), wants_average.tensors()); }),
      directory_of(run.path(), 1) + ": holds no running average of the weights; set train.ema: 0, or start a new run");
}

TEST(Checkpoint, LossAndScaleThatAreAbsentOrNotFiniteComeBackAbsent) {
  const TemporaryDirectory run;
  SmallTraining training;
  CheckpointState state = state_at(5);
  state.loss = std::numeric_limits<double>::quiet_NaN();
  state.loss_scale = 65536;
  state.good_steps = 1999;
  state.skipped = 3;
  save_checkpoint(run.path(), state, training.tensors(), 3);
  const CheckpointState loaded = read_newest_state(run.path());
  EXPECT_FALSE(loaded.loss.has_value());
  EXPECT_EQ(loaded.loss_scale, 65536);
  EXPECT_EQ(loaded.good_steps, 1999);
  EXPECT_EQ(loaded.skipped, 3);
}

TEST(Checkpoint, TheNewestIsLoaded) {
  const TemporaryDirectory run;
  for (std::int64_t step : {1000, 2000, 123456789}) save(run.path(), step);
  EXPECT_EQ(checkpoint_steps(run.path()), (Steps{1000, 2000, 123456789}));
  EXPECT_EQ(resumed_step(run.path()), 123456789);
}

TEST(Checkpoint, OnlyTheNewestAreKept) {
  const TemporaryDirectory run;
  for (std::int64_t step : {10, 20, 30, 40, 50}) save(run.path(), step, 3);
  EXPECT_EQ(checkpoint_steps(run.path()), (Steps{30, 40, 50}));
  EXPECT_EQ(names_in(run / "checkpoints").size(), 3u);
}

TEST(Checkpoint, KeepZeroKeepsAll) {
  const TemporaryDirectory run;
  for (std::int64_t step : {10, 20, 30, 40}) save(run.path(), step, 0);
  EXPECT_EQ(checkpoint_steps(run.path()).size(), 4u);
}

// After falling back from 50 to 20 the run saves 30; with keep 1 the damaged 50 must not displace it.
TEST(Checkpoint, ADamagedLaterOneDoesNotCountAsTheNewest) {
  const TemporaryDirectory run;
  save(run.path(), 20);
  save(run.path(), 50);
  fs::remove(directory_of(run.path(), 50) + "/model.safetensors");
  EXPECT_EQ(resumed_step(run.path()), 20);
  save(run.path(), 30, 1);
  EXPECT_EQ(checkpoint_steps(run.path()), (Steps{30, 50}));
  EXPECT_EQ(resumed_step(run.path()), 30);
  save(run.path(), 50, 1);  // replaced when it is reached again
  EXPECT_EQ(checkpoint_steps(run.path()), Steps{50});
  EXPECT_EQ(resumed_step(run.path()), 50);
}

TEST(Checkpoint, WhatACrashLeavesIsIgnoredAndThenCleanedUp) {
  const TemporaryDirectory run;
  save(run.path(), 10);
  fs::copy(directory_of(run.path(), 10), run / "checkpoints/.tmp-step-00000020-4242");
  EXPECT_EQ(checkpoint_steps(run.path()), Steps{10});
  EXPECT_EQ(resumed_step(run.path()), 10);
  save(run.path(), 30);
  EXPECT_EQ(names_in(run / "checkpoints"), (std::set<std::string>{"step-00000010", "step-00000030"}));
}

TEST(Checkpoint, AFullDiskLeavesTheEarlierOnesAndNothingElse) {
  const TemporaryDirectory run;
  save(run.path(), 10);
  const auto old_handler = std::signal(SIGXFSZ, SIG_IGN);
  rlimit old_limit;
  getrlimit(RLIMIT_FSIZE, &old_limit);
  const rlimit small = {700, old_limit.rlim_max};  // the model fits, the optimizer does not
  setrlimit(RLIMIT_FSIZE, &small);
  const std::string message = user_error_of([&] { save(run.path(), 20, 1); });
  setrlimit(RLIMIT_FSIZE, &old_limit);
  std::signal(SIGXFSZ, old_handler);
  EXPECT_NE(message.find("cannot write: File too large"), std::string::npos) << message;
  EXPECT_EQ(names_in(run / "checkpoints"), std::set<std::string>{"step-00000010"});
  EXPECT_EQ(resumed_step(run.path()), 10);
}

TEST(Checkpoint, WeightsAloneAreMastersOrTheirAverage) {
  const TemporaryDirectory run;
  SmallTraining saved, masters, average;
  saved.fill(3);
  save_checkpoint(run.path(), state_at(1), saved.tensors(), 0);
  EXPECT_EQ(load_weights(run.path(), masters.parameters, false).step, 1);
  load_weights(run.path(), average.parameters, true);
  const auto bits = [](const Tensor& flat) { return std::string(flat.as<char>(), flat.bytes()); };
  EXPECT_EQ(bits(masters.masters), bits(saved.masters));
  EXPECT_EQ(bits(average.masters), bits(saved.ema));
}

TEST(Checkpoint, WithoutAnAverageTheMastersAreUsed) {
  const TemporaryDirectory run;
  SmallTraining saved(Dtype::f32, 5, false), loaded;
  saved.fill(3);
  save_checkpoint(run.path(), state_at(1), saved.tensors(), 0);
  load_weights(run.path(), loaded.parameters, true);
  EXPECT_EQ(std::memcmp(loaded.masters.data(), saved.masters.data(), saved.masters.bytes()), 0);
}

TEST(Checkpoint, ResumingAsASingleRankIsLoading) {
  const TemporaryDirectory run;
  save(run.path(), 10);
  const auto comm = make_single_communicator();
  SmallTraining loaded, expected;
  const CheckpointState state = resume_from_checkpoint(*comm, run.path(), loaded.tensors());
  expected.fill(10);
  EXPECT_EQ(loaded.bits(), expected.bits());
  EXPECT_EQ(state.step, 10);
  EXPECT_EQ(state.recipe, state_at(10).recipe);
}

TEST(Checkpoint, ARunThatReplacesItsOnlyCheckpointCanBeReadAllTheTime) {
  const TemporaryDirectory run;
  save(run.path(), 1);
  std::atomic<bool> done = false;
  std::thread training([&] {
    for (std::int64_t step = 2; !done; ++step) save(run.path(), step, 1);
  });
  std::string failure;
  SmallTraining loaded;
  for (int i = 0; i < 300 && failure.empty(); ++i)
    failure = user_error_of([&] {
      read_newest_state(run.path(), false);
      load_weights(run.path(), loaded.parameters, i % 2 == 0);
    });
  done = true;
  training.join();
  EXPECT_EQ(failure, "");
}

}  // namespace
}  // namespace longstride
