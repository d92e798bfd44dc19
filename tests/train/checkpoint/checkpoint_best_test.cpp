// The best checkpoint: how it is found and kept, and how a command chooses one.
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>

#include "framework/train/checkpoint/checkpoint_mirror.h"
#include "tests/train/checkpoint/checkpoint_fixture.h"

namespace longstride {
namespace {

namespace fs = std::filesystem;
using Steps = std::vector<std::int64_t>;
using testing::directory_of;
using testing::save_scored;
using testing::SmallTraining;
using testing::TemporaryDirectory;
using testing::user_error_of;

constexpr CheckpointChoice best = {CheckpointChoice::Kind::best};
CheckpointChoice at(std::int64_t step) { return {CheckpointChoice::Kind::step, step}; }

void damage(const std::string& run, std::int64_t step) {
  std::fstream file(directory_of(run, step) + "/model.safetensors", std::ios::in | std::ios::out);
  file.seekp(-3, std::ios::end);
  file.put('!');
}

// The step whose weights are read.
std::int64_t loaded(const std::string& run, const CheckpointChoice& choice) {
  SmallTraining found, expected;
  const CheckpointState state = load_weights(run, found.parameters, false, choice);
  expected.fill(static_cast<double>(state.step));
  EXPECT_EQ(std::string(found.masters.as<char>(), found.masters.bytes()),
            std::string(expected.masters.as<char>(), expected.masters.bytes()));
  return state.step;
}

class BestCheckpoint : public ::testing::Test {
 protected:
  const TemporaryDirectory run, mirror;
};

TEST_F(BestCheckpoint, AStateKeepsItsValidationLoss) {
  save_scored(run.path(), 10, 1.0 / 3, 0, false, 4321);
  const CheckpointState state = read_newest_state(run.path());
  EXPECT_EQ(state.valid_loss, 1.0 / 3);
  EXPECT_EQ(state.valid_bytes, 4321);
  save_scored(run.path(), 20, std::nullopt);
  EXPECT_EQ(read_newest_state(run.path()).valid_loss, std::nullopt);
}

TEST_F(BestCheckpoint, StaysNextToTheNewest) {
  const double losses[] = {3.0, 1.0, 2.0, 2.5, 1.5};
  for (std::int64_t i = 0; i < 5; ++i) save_scored(run.path(), 10 * (i + 1), losses[i], 2, true);
  EXPECT_EQ(checkpoint_steps(run.path()), (Steps{20, 40, 50}));
  save_scored(run.path(), 60, 0.5, 2, true);
  EXPECT_EQ(checkpoint_steps(run.path()), (Steps{50, 60}));
  save_scored(run.path(), 70, std::nullopt, 1, true);
  EXPECT_EQ(checkpoint_steps(run.path()), (Steps{60, 70}));
}

TEST_F(BestCheckpoint, GoesLikeAnyOtherUnlessItIsToBeKept) {
  for (std::int64_t step : {10, 20, 30}) save_scored(run.path(), step, static_cast<double>(step), 1, false);
  EXPECT_EQ(checkpoint_steps(run.path()), Steps{30});
}

TEST_F(BestCheckpoint, OfEqualLossesTheNewestIsBest) {
  for (std::int64_t step : {10, 20, 30}) save_scored(run.path(), step, step < 30 ? 1.0 : 2.0);
  EXPECT_EQ(best_step(run.path(), 30), 20);
  EXPECT_EQ(best_step(run.path(), 10), 10);
}

// After a resumption with other train.evaluate_windows.
TEST_F(BestCheckpoint, OnlyLossesOverAsManyBytesAreCompared) {
  save_scored(run.path(), 10, 0.5, 0, false, 100);
  save_scored(run.path(), 20, 2.0, 0, false, 900);
  save_scored(run.path(), 30, 3.0, 0, false, 900);
  EXPECT_EQ(steps_by_valid_loss(run.path(), 30, false), (Steps{20, 30}));
  EXPECT_EQ(steps_by_valid_loss(run.path(), 10, false), Steps{10});
}

TEST_F(BestCheckpoint, OnlyLossesOfOneRunAreCompared) {
  save_scored(run.path(), 10, 0.5, 0, false, 900, "another");
  save_scored(run.path(), 20, 2.0, 0, false, 900);  // from before runs had ids
  save_scored(run.path(), 30, 3.0, 0, false, 900, "own");
  EXPECT_EQ(steps_by_valid_loss(run.path(), 30, false), (Steps{20, 30}));
}

TEST_F(BestCheckpoint, ADamagedOneGivesWayToTheNext) {
  for (std::int64_t step : {10, 20, 30}) save_scored(run.path(), step, static_cast<double>(step));
  EXPECT_EQ(loaded(run.path(), best), 10);
  damage(run.path(), 10);
  EXPECT_EQ(loaded(run.path(), best), 20);
  fs::remove(directory_of(run.path(), 20) + "/model.safetensors");
  EXPECT_EQ(best_step(run.path(), 30), 10);  // sizes only
  fs::resize_file(directory_of(run.path(), 10) + "/model.safetensors", 5);
  EXPECT_EQ(best_step(run.path(), 30), 30);
  fs::resize_file(directory_of(run.path(), 30) + "/state.json", 5);
  EXPECT_EQ(best_step(run.path(), 30), std::nullopt);
}

TEST_F(BestCheckpoint, EveryChoiceReadsItsWeights) {
  for (std::int64_t step : {10, 20, 30}) save_scored(run.path(), step, std::abs(static_cast<double>(step) - 19));
  EXPECT_EQ(loaded(run.path(), {}), 30);
  EXPECT_EQ(loaded(run.path(), best), 20);
  EXPECT_EQ(loaded(run.path(), at(10)), 10);
  EXPECT_EQ(read_state(run.path(), best).step, 20);
  EXPECT_EQ(read_state(run.path(), at(10)).step, 10);
}

TEST_F(BestCheckpoint, AChoiceThatMatchesNothingListsWhatThereIs) {
  const auto refusal = [&](const CheckpointChoice& choice) {
    return user_error_of([&] { read_state(run.path(), choice); });
  };
  save_scored(run.path(), 10, std::nullopt);
  EXPECT_EQ(refusal(at(11)), run.path() + ": holds no checkpoint of step 11; choose from 10");
  save_scored(run.path(), 20, std::nullopt);
  save_scored(run.path(), 30, std::nullopt);
  EXPECT_EQ(refusal(at(11)), run.path() + ": holds no checkpoint of step 11; choose from 10, 20 and 30");
  EXPECT_EQ(refusal(best), run.path() +
                               ": none of its checkpoints has a validation loss to choose the best by, because "
                               "training evaluated at other steps (train.evaluate_every); choose from 10, 20 and 30");
  for (std::int64_t step = 40; step <= 130; step += 10) save_scored(run.path(), step, std::nullopt);
  EXPECT_EQ(refusal(at(11)),
            run.path() + ": holds no checkpoint of step 11; choose from 10, 20, 30, 40, ... 100, 110, 120 and 130");
}

TEST_F(BestCheckpoint, ADamagedCheckpointThatWasChosenIsRefused) {
  save_scored(run.path(), 10, 1.0);
  damage(run.path(), 10);
  const std::string cause = "the checkpoint of step 10 cannot be read (" + directory_of(run.path(), 10) +
                            "/model.safetensors: its content does not match its checksum)";
  EXPECT_EQ(user_error_of([&] { loaded(run.path(), at(10)); }), run.path() + ": " + cause + "; it is the only one");
  save_scored(run.path(), 20, 1.0);
  EXPECT_EQ(user_error_of([&] { loaded(run.path(), at(10)); }), run.path() + ": " + cause + "; choose from 20");
}

TEST_F(BestCheckpoint, AMirrorKeepsItToo) {
  const double losses[] = {1.0, 3.0, 2.0};
  for (std::int64_t i = 0; i < 3; ++i) {
    save_scored(run.path(), 10 * (i + 1), losses[i], 1, true);
    mirror_checkpoint(run.path(), 10 * (i + 1), mirror.path(), 1, true);
  }
  EXPECT_EQ(checkpoint_steps(mirror.path()), (Steps{10, 30}));
}

TEST_F(BestCheckpoint, AMirrorThatIsAddedLaterGetsIt) {
  save_scored(run.path(), 10, 1.0, 1, true);
  save_scored(run.path(), 20, 2.0, 1, true);
  mirror_checkpoint(run.path(), 20, mirror.path(), 1, true);
  EXPECT_EQ(checkpoint_steps(mirror.path()), (Steps{10, 20}));
}

// A damaged best checkpoint must not cost the newest one its copy.
TEST_F(BestCheckpoint, ADamagedOneIsNotMirrored) {
  save_scored(run.path(), 10, 1.0, 1, true);
  save_scored(run.path(), 20, 2.0, 1, true);
  damage(run.path(), 10);
  mirror_checkpoint(run.path(), 20, mirror.path(), 1, true);
  EXPECT_EQ(checkpoint_steps(mirror.path()), Steps{20});
}

TEST_F(BestCheckpoint, ARunThatLostItGetsItBackFromItsMirror) {
  for (std::int64_t step : {10, 20}) {
    save_scored(run.path(), step, static_cast<double>(step), 1, true);
    mirror_checkpoint(run.path(), step, mirror.path(), 1, true);
  }
  damage(run.path(), 10);
  EXPECT_EQ(restore_from_mirror(run.path(), mirror.path(), true), std::nullopt);  // the newest is not lost
  EXPECT_EQ(loaded(run.path(), best), 10);
  fs::remove_all(run / "checkpoints");
  EXPECT_EQ(restore_from_mirror(run.path(), mirror.path(), false), 20);
  EXPECT_EQ(checkpoint_steps(run.path()), Steps{20});
  EXPECT_EQ(restore_from_mirror(run.path(), mirror.path(), true), std::nullopt);
  EXPECT_EQ(checkpoint_steps(run.path()), (Steps{10, 20}));
}

}  // namespace
}  // namespace longstride
