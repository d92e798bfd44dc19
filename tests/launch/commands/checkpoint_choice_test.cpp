// Commands choose a checkpoint, and a run keeps its best one.
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "framework/train/checkpoint/checkpoint.h"
#include "launch/report/run_history.h"
#include "tests/support/text_run.h"

namespace longstride::testing::checkpoint_choice_test {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;
using Steps = std::vector<std::int64_t>;

// With this learning rate the loss first falls, then rises.
const std::string recipe = text_recipe(1,
                                       "steps: 6, global_batch: 2, lr: 0.5, warmup: 3, schedule: constant, "
                                       "checkpoint_every: 1, evaluate_every: 1, keep: 1, mirror: copies");

class CheckpointChosen : public TextRun {
 protected:
  CheckpointChosen() : TextRun(recipe, {}) {}
  void train(Arguments more) const {
    more.insert(more.begin(), {"train", "r.yaml", "--run", "run"});
    run_well(more);
  }
  Steps steps(const std::string& place = "run") const { return checkpoint_steps(dir / place); }
  // By the losses that training has logged.
  EvaluationPoint best() const {
    const auto all = read_history(dir / "run").evaluations;
    return *std::min_element(all.begin(), all.end(), [](auto& a, auto& b) { return a.figure < b.figure; });
  }
  Json evaluated(const std::string& checkpoint) const {
    return Json::parse(run_well({"eval", "run", "--split", "valid", "--checkpoint", checkpoint, "--json"}).out);
  }
};

TEST_F(CheckpointChosen, ADamagedOneIsWarnedOfOnce) {
  train({"--set", "train.keep=0", "--set", "train.mirror=''"});
  const auto warnings = [&](const std::vector<std::string>& arguments) {
    const CommandResult result = run(arguments);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    std::size_t count = 0;
    for (std::size_t at = 0; (at = result.err.find("step 6 is skipped", at)) != std::string::npos; ++at) ++count;
    return count;
  };
  for (const char* file : {"model.safetensors", "state.json"}) {
    const std::string path = dir / ("run/checkpoints/step-00000006/" + std::string(file)), whole = text_of(path);
    write_text(path, whole.substr(0, whole.size() / 2));
    for (const std::vector<std::string>& command :
         {std::vector<std::string>{"eval", "run", "--windows", "1"},
          {"sample", "run"},
          {"attention", "run"},
          {"report", "run"},
          {"export", "run", "--output", "weights", "--force"},
          {"train", "r.yaml", "--from", "run", "--run", file},
          {"train", "r.yaml", "--run", "run", "--resume", "--set", "train.keep=0", "--set", "train.mirror=''"}})
      EXPECT_EQ(warnings(command), 1U) << file << " " << command[0];
    write_text(path, whole);
  }
}

TEST_F(CheckpointChosen, TheBestIsKeptAlsoByTheMirrorAndByAResumedRun) {
  train({"--set", "train.keep_best=true"});
  const EvaluationPoint first = best();
  ASSERT_LT(first.step, 6);
  EXPECT_EQ(steps(), (Steps{first.step, 6}));
  EXPECT_EQ(steps("copies/run"), steps());
  train({"--set", "train.keep_best=true", "--set", "train.steps=9", "--resume-changed"});
  ASSERT_EQ(best().step, first.step);
  EXPECT_EQ(steps(), (Steps{first.step, 9}));
  EXPECT_EQ(steps("copies/run"), steps());
  fs::remove_all(dir / "run/checkpoints");
  train({"--set", "train.keep_best=true", "--set", "train.steps=10", "--resume-changed"});
  EXPECT_EQ(steps(), (Steps{first.step, 10}));
  const Json scored = evaluated("best");
  EXPECT_EQ(scored.at("step"), first.step);
  EXPECT_NEAR(scored.at("bits_per_byte").get<double>(), first.figure, 1e-4);
}

TEST_F(CheckpointChosen, CommandsReadTheLastUnlessTheyAreToldOtherwise) {
  train({"--set", "train.keep=0"});
  ASSERT_LT(best().step, 6);
  EXPECT_EQ(Json::parse(run({"eval", "run", "--json"}).out).at("step"), 6);
  EXPECT_EQ(evaluated("last").at("step"), 6);
  EXPECT_EQ(evaluated("2").at("step"), 2);
  EXPECT_EQ(evaluated("best").at("step"), best().step);
  const CommandResult drawn = run({"sample", "run", "--checkpoint", "2", "--output", "drawn"});
  EXPECT_NE(drawn.out.find("from step 2: drawn\n"), std::string::npos) << drawn.out << drawn.err;
  const CommandResult shown = run({"attention", "run", "--checkpoint", "3", "--output", "shown"});
  EXPECT_NE(shown.out.find(" pictures of step 3, "), std::string::npos) << shown.out << shown.err;
}

TEST_F(CheckpointChosen, AChoiceThatThereIsNotIsRefusedWithThoseThereAre) {
  train({"--set", "train.keep=2", "--set", "train.evaluate_every=0", "--set", "train.steps=5"});
  for (const char* command : {"eval", "sample", "attention"}) {
    expect_refused({command, "run", "--checkpoint", "3"}, "run: holds no checkpoint of step 3; choose from 4 and 5");
    expect_refused({command, "run", "--checkpoint", "newest"},
                   "--checkpoint is 'newest', but must be best, last, or a step such as 1000");
  }
  fs::remove_all(dir / "run/checkpoints/step-00000005");  // the only step that was evaluated
  expect_refused({"eval", "run", "--checkpoint", "best"},
                 "run: none of its checkpoints has a validation loss to choose the best by, because training evaluated "
                 "at other steps (train.evaluate_every); choose from 4");
}

TEST_F(CheckpointChosen, ThereIsNoBestWithoutAValidationSplit) {
  ASSERT_EQ(
      run({"prepare", "bytes", "--input", "text.bin", "--output", "x.h5", "--force", "--split", "0.9,0,0.1"}).exit_code,
      0);
  train({});
  expect_refused({"eval", "run", "--checkpoint", "best"},
                 "run: none of its checkpoints has a validation loss to choose the best by, because the validation "
                 "split of its data is empty; choose from 6");
}

TEST_F(CheckpointChosen, AnEmptySplitHasNothingToShowOrContinue) {
  ASSERT_EQ(
      run({"prepare", "bytes", "--input", "text.bin", "--output", "x.h5", "--force", "--split", "1.0,0,0"}).exit_code,
      0);
  train({});
  expect_refused({"attention", "run"},
                 "x.h5: the split 'test' has no whole sequence of 64 bytes to show; choose another with --split");
  expect_refused(
      {"sample", "run", "--complete", "valid"},
      "x.h5: the split 'valid' has no whole sequence of 64 bytes to continue; choose another with --complete");
}

TEST_F(CheckpointChosen, KeepingTheBestNeedsLossesToChooseBy) {
  expect_refused(
      {"train", "r.yaml", "--run", "run", "--set", "train.keep_best=true", "--set", "train.evaluate_every=0"},
      "--set train.keep_best=true: train.keep_best is true, but train.evaluate_every is 0, so there are no "
      "validation losses to choose by; set train.evaluate_every: 1");
  ASSERT_EQ(run({"prepare", "bytes", "--input", "text.bin", "--output", "none.h5", "--split", "3000,0,1000"}).exit_code,
            0);
  expect_refused({"train", "r.yaml", "--run", "run", "--set", "train.keep_best=true", "--set", "data.path=none.h5"},
                 "none.h5: 'valid' is empty, but train.keep_best chooses by its loss; prepare it with a larger split, "
                 "or set train.keep_best: false");
  EXPECT_FALSE(fs::exists(dir / "run"));
}

const std::string growing_windows = R"(name: growing
data: {kind: bytes, path: x.h5, context: 32}
model:
  kind: decoder
  layers: 2
  width: 16
  heads: 2
  positions: none
  init_deviation: 0.5
  distance: {table: sinusoid}
train:
  steps: 4
  global_batch: 2
  lr: 1.0e-2
  warmup: 0
  checkpoint_every: 1
  evaluate_every: 1
  stages: [{until: 1, window: 2}, {until: 3, window: [4, 5]}]
)";

TEST(CheckpointOfAStage, IsReadWithTheWindowsThatItWasEvaluatedWith) {
  const TemporaryDirectory dir;
  ASSERT_NO_FATAL_FAILURE(prepare_text(dir, growing_windows));
  const auto run = [&](std::vector<std::string> arguments) {
    const CommandResult result = run_command(arguments, dir.path());
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return result.out;
  };
  run({"train", "r.yaml", "--run", "run", "--set", "train.keep=0"});
  for (const EvaluationPoint& point : read_history(dir / "run").evaluations) {
    const std::string step = std::to_string(point.step);
    for (const std::string memory : {"", "0"}) {
      std::vector<std::string> arguments = {"eval", "run", "--split", "valid", "--json", "--checkpoint", step};
      if (!memory.empty()) arguments.insert(arguments.end(), {"--memory", memory});
      EXPECT_NEAR(Json::parse(run(arguments)).at("bits_per_byte").get<double>(), point.figure, 1e-4) << step;
    }
  }
  const auto last_row = [&] { return run({"show", "pattern", "run", "--positions", "8"}); };
  EXPECT_NE(last_row().find("#######@"), std::string::npos);
  fs::remove_all(dir / "run/checkpoints/step-00000004");
  EXPECT_NE(last_row().find("....###@"), std::string::npos) << last_row();
}

// A stage that reads other numbers of bytes ends what one tensor of batches can hold.
TEST(CheckpointOfAStage, IsNotNeededToExportTheBatchesBeforeTheNext) {
  const TemporaryDirectory dir;
  ASSERT_NO_FATAL_FAILURE(prepare_text(dir, growing_windows));
  const auto refusal = [&](const std::vector<std::string>& more) {
    std::vector<std::string> arguments = {
        "export", "r.yaml", "--output", "out", "--set", "train.stages=[{until: 2, context: 16, global_batch: 8}]"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run_command(arguments, dir.path()).err;
  };
  const std::string sentence = ", but later stages of these read other numbers of bytes; choose at most 2\n";
  EXPECT_EQ(refusal({"--steps", "100"}), "longstride: --steps is 100" + sentence);
  EXPECT_EQ(refusal({}), "longstride: --steps is 4 by default" + sentence);
  EXPECT_EQ(refusal({"--steps", "2"}), "");
}

TEST(CheckpointOfSpans, GivesWayToTheNextIfItsWeightsAreDamaged) {
  const TemporaryDirectory dir;
  ASSERT_NO_FATAL_FAILURE(prepare_text(dir, growing_windows));
  ASSERT_EQ(run_command({"train", "r.yaml", "--run", "run", "--set", "model.distance.span={longest: 8, initial: 0.5}",
                         "--set", "train.stages=[]"},
                        dir.path())
                .exit_code,
            0);
  const std::string weights = dir / "run/checkpoints/step-00000004/model.safetensors";
  std::string damaged = text_of(weights);
  for (const std::size_t at : {damaged.size() - 1, std::size_t{0}}) {
    damaged[at] = static_cast<char>(damaged[at] ^ 0x7f);
    write_text(weights, damaged);
    for (const std::vector<std::string>& command :
         {std::vector<std::string>{"show", "spans", "run"}, {"show", "pattern", "run"}, {"report", "run"}}) {
      const CommandResult result = run_command(command, dir.path());
      EXPECT_EQ(result.exit_code, 0) << command[1] << at;
      EXPECT_EQ(result.err,
                "the checkpoint of step 4 is skipped: run/checkpoints/step-00000004/model.safetensors: its "
                "content does not match its checksum\n");
    }
    EXPECT_NE(run_command({"show", "spans", "run"}, dir.path()).out.find("step 3"), std::string::npos);
  }
}

}  // namespace
}  // namespace longstride::testing::checkpoint_choice_test
