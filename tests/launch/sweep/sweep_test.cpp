// `train --sweep`: the runs of a plan, what is refused, and that a sweep which was stopped ends with the same table.
#include <gtest/gtest.h>
#include <signal.h>

#include <chrono>
#include <nlohmann/json.hpp>
#include <thread>

#include "framework/core/errors.h"
#include "launch/sweep/sweep_plan.h"
#include "launch/sweep/sweep_table.h"
#include "tests/support/text_run.h"

namespace longstride::testing::sweep_test {
namespace {

class Sweeps : public TextRun {
 protected:
  Sweeps()
      : TextRun(text_recipe(1, "steps: 40, global_batch: 2, lr: 1.0e-3, warmup: 1, checkpoint_every: 4, log_every: 1"),
                {}) {}
  static constexpr const char* nine = "train r.yaml --sweep train.lr=1e-3,4e-3,1.6e-2 --seeds 3 --run ";
  static Arguments words(const std::string& directory) {
    std::istringstream in(nine + directory);
    return {std::istream_iterator<std::string>(in), {}};
  }
};

TEST_F(Sweeps, APlanHasEveryCombinationWithEverySeed) {
  const SweepPlan plan = plan_sweep(dir / "r.yaml", {"train.seed=7"},
                                    {"train.lr=1e-3,2e-3",
                                     "model.attention={integration: merged, parts: "
                                     "[local], stride: 8},{integration: merged, parts: [dense], stride: 8}"},
                                    1);
  ASSERT_EQ(plan.runs.size(), 4U);
  EXPECT_EQ(plan.combinations[1],
            (std::vector<std::string>{"1e-3", "{integration: merged, parts: [dense], stride: 8}"}));
  EXPECT_EQ(plan.runs[3].recipe.train.lr, 2e-3);
  EXPECT_EQ(plan.runs[3].name.find('/'), std::string::npos);
  EXPECT_EQ(plan.runs[3].name.find(' '), std::string::npos);
  const SweepPlan seeds = plan_sweep(dir / "r.yaml", {}, {"train.lr=1e-3,2e-3"}, 3);
  ASSERT_EQ(seeds.runs.size(), 6U);
  EXPECT_EQ(seeds.runs[4].name, "lr=2e-3,seed=2");
  EXPECT_EQ(seeds.runs[4].recipe.train.seed, 2U);
  EXPECT_EQ(seeds.runs[4].combination, 1U);
}

TEST_F(Sweeps, WhatIsNoSweepIsRefused) {
  const auto refused = [&](Arguments more, const std::string& sentence) {
    more.insert(more.begin(), {"train", "r.yaml"});
    expect_refused(more, sentence);
  };
  refused({"--sweep", "train.lr=1e-3"},
          "--sweep train.lr=1e-3: has one value, which --set sets; give several, separated by commas, as in --sweep "
          "train.lr=1e-3,4e-3");
  refused({"--sweep", "train.lrr=1e-3,2e-3"}, "--sweep train.lrr=1e-3: unknown key 'lrr' in train; did you mean 'lr'?");
  refused({"--sweep", "train.lr=1e-3,1e-3"}, "--sweep train.lr=1e-3,1e-3: has 1e-3 twice; give every value once");
  refused({"--sweep", "train.lr"}, "--sweep train.lr: must be KEY=VALUE,VALUE, as in --sweep train.lr=1e-3,4e-3");
  refused({"--sweep", "train.lr=1e-3,"},
          "--sweep train.lr=1e-3,: has an empty value; give one, as in --sweep train.lr=1e-3,4e-3");
  refused({"--sweep", "train.lr=1e-3,2e-3", "--sweep", "train.lr=3e-3,4e-3"},
          "--sweep train.lr is given twice; give all its values in one");
  refused({"--sweep", "train.lr=1e-3,2e-3", "--set", "train.lr=1"},
          "--set train.lr=1 sets what the sweep varies; leave it out");
  refused({"--sweep", "train.seed=1,2", "--seeds", "2"},
          "--sweep train.seed and --seeds are given; leave one of them out");
  refused({"--sweep", "train.lr=1e-3,2e-3", "--resume"},
          "--resume is given, but a sweep continues by itself what is not finished; leave it out");
  std::string many = "train.seed=1";
  for (int i = 2; i <= 1001; ++i) many += fmt::format(",{}", i);
  refused({"--sweep", many}, "the sweep has 1,001 or more runs, but may have at most 1,000; leave out values or seeds");
}

// Killed with its training, and asked to stop: the runs that had finished are not trained again.
TEST_F(Sweeps, OneThatWasKilledEndsWithTheSameTable) {
  const std::string whole = run_well(words("whole")).out;
  for (const int signal : {SIGKILL, SIGTERM}) {
    const std::string name = signal == SIGKILL ? "killed" : "stopped";
    const pid_t child = ::fork();
    if (child == 0) {
      ::setenv("OMP_NUM_THREADS", "1", 1);
      std::vector<std::string> all = words(name);
      all.insert(all.begin(), LONGSTRIDE_COMMAND);
      std::vector<char*> argv;
      for (std::string& word : all) argv.push_back(word.data());
      argv.push_back(nullptr);
      if (::chdir(dir.path().c_str()) == 0 && ::freopen("/dev/null", "w", stdout) &&
          ::freopen("/dev/null", "w", stderr))
        ::execv(argv[0], argv.data());
      ::_exit(127);
    }
    const std::string second = dir / (name + "/lr=1e-3,seed=2/checkpoints/step-00000004");
    for (int i = 0; i < 6000 && !std::filesystem::exists(second); ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    ::kill(child, signal);
    int status = 0;
    ::waitpid(child, &status, 0);
    const std::string first = name + "/lr=1e-3,seed=1/environment.json", before = text(first);
    ASSERT_FALSE(before.empty());
    EXPECT_FALSE(std::filesystem::exists(dir / (name + "/lr=1.6e-2,seed=3/recipe.yaml")));
    EXPECT_EQ(run_well(words(name)).out, whole) << name;
    EXPECT_EQ(text(first), before);
    EXPECT_FALSE(std::filesystem::exists(dir / (name + "/lr=1e-3,seed=1/environment-2.json")));
  }
  EXPECT_EQ(run_well(words("whole")).out, whole);
  expect_refused({"train", "r.yaml", "--sweep", "train.lr=1e-3,4e-3,1.6e-2", "--seeds", "3", "--run", "whole", "--set",
                  "train.warmup=2"},
                 "whole/lr=1e-3,seed=1: was trained with other settings: train.warmup was 1 and is 2; choose another "
                 "directory with --run");
}

TEST_F(Sweeps, ATableHasMeansAndTheirSpreadAndWhatDiverged) {
  const SweepPlan plan = plan_sweep(dir / "r.yaml", {}, {"train.lr=1e-3,2e-3"}, 2);
  std::vector<SweepResult> results = {{SweepOutcome::finished, 2.0},
                                      {SweepOutcome::finished, 3.0},
                                      {SweepOutcome::finished, 2.25},
                                      {SweepOutcome::diverged, {}}};
  EXPECT_EQ(sweep_as_text(plan, results),
            "train.lr  runs  mean    spread  lowest  highest\n"
            "1e-3      2     2.5000  0.7071  2.0000  3.0000\n"
            "2e-3      1     2.2500  -       2.2500  2.2500   1 diverged, best\n");
  const nlohmann::json table = sweep_as_json(plan, results).at("table");
  EXPECT_DOUBLE_EQ(table.at(0).at("mean"), 2.5);
  EXPECT_EQ(table.at(1).at("diverged"), 1);
  EXPECT_TRUE(table.at(1).at("spread").is_null());
}

}  // namespace
}  // namespace longstride::testing::sweep_test
