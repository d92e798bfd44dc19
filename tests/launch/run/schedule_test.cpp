// The learning rate of a run, as its metrics show it to a user.
#include <gtest/gtest.h>

#include <cmath>

#include "launch/report/run_history.h"
#include "tests/support/text_run.h"

namespace longstride::testing::schedule_test {
namespace {

const std::string recipe =
    text_recipe(1, "steps: 10, global_batch: 2, lr: 1.0e-3, warmup: 2, log_every: 1, checkpoint_every: 0");

class TrainedSchedule : public TextRun {
 protected:
  TrainedSchedule() : TextRun(recipe, {}) {}
  void train(const std::string& name, Arguments more) const {
    more.insert(more.begin(), {"train", "r.yaml", "--run", name});
    run_well(more);
  }
  std::vector<double> rates(const std::string& name) const {
    std::vector<double> rates;
    for (const auto& step : read_history(dir / name).steps) rates.push_back(step.lr);
    return rates;
  }
  static void expect_near(const std::vector<double>& found, const std::vector<double>& expected) {
    ASSERT_EQ(found.size(), expected.size());
    for (std::size_t i = 0; i < found.size(); ++i) EXPECT_NEAR(found[i], expected[i], 1e-12) << i;
  }
};

TEST_F(TrainedSchedule, TheDefaultIsTheCosineToZero) {
  train("default", {});
  train("named", {"--set", "train.schedule=cosine", "--set", "train.lr_floor=0"});
  EXPECT_EQ(rates("default"), rates("named"));
  std::vector<double> expected;
  for (int s = 0; s < 10; ++s) expected.push_back((s == 0 ? 0.5 : 1) * 1e-3 * (1 + std::cos(M_PI * s / 10)) / 2);
  expect_near(rates("default"), expected);
}

TEST_F(TrainedSchedule, TheCosineEndsAtTheFloor) {
  train("run", {"--set", "train.lr_floor=1e-4"});
  const std::vector<double> found = rates("run");
  ASSERT_EQ(found.size(), 10U);
  EXPECT_NEAR(found[5], 5.5e-4, 1e-12);
  EXPECT_NEAR(found[9], 1e-4 + 9e-4 * (1 + std::cos(0.9 * M_PI)) / 2, 1e-12);
}

TEST_F(TrainedSchedule, AConstantLearningRateOnlyWarmsUp) {
  train("run", {"--set", "train.schedule=constant"});
  expect_near(rates("run"), {5e-4, 1e-3, 1e-3, 1e-3, 1e-3, 1e-3, 1e-3, 1e-3, 1e-3, 1e-3});
}

// Neither stages nor a resumption change what a step's learning rate is.
TEST_F(TrainedSchedule, WarmupStableDecaySurvivesStagesAndResumption) {
  std::vector<std::string> settings = {
      "--set", "train.schedule=warmup_stable_decay", "--set", "train.decay_steps=4", "--set", "train.lr_floor=2e-4"};
  const std::vector<double> expected = {5e-4, 1e-3, 1e-3, 1e-3, 1e-3, 1e-3, 1e-3, 8e-4, 6e-4, 4e-4};
  train("run", settings);
  expect_near(rates("run"), expected);
  settings.insert(settings.end(), {"--set", "train.stages=[{until: 8, context: 16}]"});
  train("stages", settings);
  expect_near(rates("stages"), expected);
  settings.insert(settings.end(), {"--set", "train.checkpoint_every=8"});
  train("halves", settings);
  std::filesystem::remove_all(dir / "halves/checkpoints/step-00000010");
  settings.emplace_back("--resume");
  train("halves", settings);
  EXPECT_EQ(rates("halves"), rates("stages"));
}

TEST_F(TrainedSchedule, ATenthOfTheStepsDecayUnlessARecipeSaysOtherwise) {
  train("run", {"--set", "train.schedule=warmup_stable_decay", "--set", "train.steps=20"});
  const std::vector<double> found = rates("run");
  ASSERT_EQ(found.size(), 20U);
  EXPECT_NEAR(found[18], 1e-3, 1e-12);
  EXPECT_NEAR(found[19], 5e-4, 1e-12);
}

// A published constant of 0.004 / sqrt(step), and the same learning rates by their peak.
TEST_F(TrainedSchedule, ReciprocalSqrtTakesAFactorOrAPeak) {
  train("factor", {"--set", "train.schedule=reciprocal_sqrt", "--set", "train.lr=4e-3", "--set", "train.lr_is=factor",
                   "--set", "train.decay_from=4"});
  train("peak", {"--set", "train.schedule=reciprocal_sqrt", "--set", "train.lr=2e-3", "--set", "train.decay_from=4"});
  std::vector<double> expected = {1e-3, 2e-3, 2e-3, 2e-3};
  for (int step = 5; step <= 10; ++step) expected.push_back(4e-3 / std::sqrt(step));
  expect_near(rates("factor"), expected);
  EXPECT_EQ(rates("factor"), rates("peak"));
}

TEST_F(TrainedSchedule, AnotherScheduleIsAChangeOfTheRun) {
  train("run", {});
  const CommandResult resumed =
      run({"train", "r.yaml", "--run", "run", "--resume", "--set", "train.schedule=constant"});
  EXPECT_EQ(resumed.exit_code, 2);
  EXPECT_EQ(resumed.err,
            "longstride: the run in run would not continue as it began: train.schedule was cosine and is constant; "
            "resume it with its own recipe and data, or accept the change with --resume-changed\n");
}

TEST_F(TrainedSchedule, AFloorThatIsNoLearningRateIsRefused) {
  const CommandResult result = run({"plan", "r.yaml", "--set", "train.lr_floor=0.1"});
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_EQ(result.err,
            "longstride: --set train.lr_floor=0.1: train.lr_floor is 0.1, but must be below train.lr, 0.001: it is a "
            "learning rate, not a part of one; set train.lr_floor: 0.0001, a tenth of it\n");
}

TEST_F(TrainedSchedule, TheReportShowsIt) {
  train("run", {"--set", "train.schedule=warmup_stable_decay", "--set", "train.decay_steps=4"});
  ASSERT_EQ(run({"report", "run"}).exit_code, 0);
  EXPECT_NE(text_of(dir / "run/report.html").find("0.001 after 2 steps of warmup, to 0 in the last 4 steps"),
            std::string::npos);
}

}  // namespace
}  // namespace longstride::testing::schedule_test
