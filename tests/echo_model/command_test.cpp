// The command with a model that remembers: checkpoints, ranks, and what is refused.
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "tests/support/command.h"

namespace longstride::testing {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

// The learning rate is too small to change a weight, so that what rows remember has the same bits on any ranks.
constexpr const char* recipe = R"(name: echoes
data: {kind: bytes, path: x.h5, context: 32, order: streams}
model: {kind: echo, layers: 2, width: 16, delay: 5, dropout: 0.1}
train: {steps: 9, global_batch: 4, lr: 1.0e-37, warmup: 1, weight_decay: 0, log_every: 1, checkpoint_every: 3, keep: 5}
)";

class EchoCommand : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    dir = new TemporaryDirectory;
    std::string text;
    for (int i = 0; i < 1200; ++i) text += static_cast<char>('a' + i * i % 23);
    write_text(*dir / "text.bin", text);
    write_text(*dir / "r.yaml", recipe);
    ASSERT_EQ(run({"prepare", "bytes", "--input", "text.bin", "--output", "x.h5"}).exit_code, 0);
    const CommandResult trained = run({"train", "r.yaml", "--run", "run"});
    ASSERT_EQ(trained.exit_code, 0) << trained.err;
  }
  static void TearDownTestSuite() { delete dir; }

  static CommandResult run(const std::vector<std::string>& arguments, int ranks = 1) {
    return run_command(arguments, dir->path(), 120, ranks);
  }
  static void expect_refused(const std::vector<std::string>& arguments, const std::string& sentence) {
    const CommandResult result = run(arguments);
    EXPECT_EQ(result.exit_code, 2);
    EXPECT_EQ(result.err, "longstride: " + sentence + "\n");
  }
  static std::string file_of(const std::string& of, int step, const std::string& name) {
    return text_of(*dir / (of + "/checkpoints/step-0000000" + std::to_string(step) + "/" + name));
  }
  // The run's checkpoints up to `step`, continued on as many ranks.
  static void continue_from(const std::string& from, const std::string& to, int step, int ranks) {
    fs::copy(*dir / from, *dir / to, fs::copy_options::recursive);
    for (int later = step + 3; later <= 9; later += 3)
      fs::remove_all(*dir / (to + "/checkpoints/step-0000000" + std::to_string(later)));
    const CommandResult result = run({"train", "r.yaml", "--run", to, "--resume"}, ranks);
    ASSERT_EQ(result.exit_code, 0) << result.err;
  }

  static TemporaryDirectory* dir;
};
TemporaryDirectory* EchoCommand::dir = nullptr;

TEST_F(EchoCommand, RowsKeepTheirMemoryOnOneTwoAndFourRanks) {
  const std::string whole = file_of("run", 9, "states-00000-of-00001.safetensors");
  ASSERT_FALSE(whole.empty());
  continue_from("run", "on-four", 3, 4);
  continue_from("on-four", "on-two", 6, 2);
  EXPECT_FALSE(file_of("on-two", 9, "states-00001-of-00002.safetensors").empty());
  continue_from("on-four", "on-one", 6, 1);
  EXPECT_TRUE(file_of("on-one", 9, "states-00000-of-00001.safetensors") == whole);
  // The rows of two ranks, one after another, are those of one.
  continue_from("run", "by-two", 6, 2);
  for (const char* file : {"states-00000-of-00002.safetensors", "states-00001-of-00002.safetensors"})
    EXPECT_TRUE(file_of("by-two", 9, file) == file_of("on-two", 9, file)) << file;
}

TEST_F(EchoCommand, OnlyACheckpointWithMemoryHasTheVersionOfOne) {
  const Json state = Json::parse(file_of("run", 9, "state.json"));
  EXPECT_EQ(state.at("version"), 3);
  EXPECT_EQ(state.at("steps_of_stream"), 1080 / 4 / 32);
}

TEST_F(EchoCommand, TheMemoryIsPlannedAndEvaluationsReadInOrder) {
  const Json plan = Json::parse(run({"plan", "r.yaml", "--json", "--peak-tflops", "1"}).out);
  EXPECT_EQ(plan.at("bytes_per_rank").at("states"), 2 * 4 * 2 * 128 * 4);
  const CommandResult scored = run({"eval", "run", "--json"});
  ASSERT_EQ(scored.exit_code, 0) << scored.err;
  EXPECT_EQ(Json::parse(scored.out).at("bytes"), 60);
  const Json bench = Json::parse(run({"bench", "step", "r.yaml", "--steps", "3", "--json"}).out);
  EXPECT_EQ(bench.at("planned_bytes"), bench.at("used_bytes"));
}

// The recipe's own run has learned nothing, so that its loss depends on no context.
TEST_F(EchoCommand, StreamsReadTheMinimumOfContextFirst) {
  const CommandResult trained = run({"train", "r.yaml", "--run", "taught", "--set", "train.lr=1e-2"});
  ASSERT_EQ(trained.exit_code, 0) << trained.err;
  const auto loss_of = [](const std::string& streams, const std::string& min_context) {
    const CommandResult result = run({"eval", "taught", "--json", "--batch", streams, "--min-context", min_context});
    const Json out = Json::parse(result.out);
    EXPECT_EQ(out.at("bytes"), 60);
    EXPECT_EQ(out.at("min_context"), std::stoi(min_context));
    EXPECT_FALSE(out.contains("memory"));
    return out.at("loss").get<double>();
  };
  const double loss = loss_of("1", "0");
  EXPECT_EQ(loss_of("1", "500"), loss);
  EXPECT_NEAR(loss_of("2", "60"), loss, 1e-6 * loss);
  EXPECT_GT(std::abs(loss_of("2", "0") - loss), 1e-6 * loss);
}

TEST_F(EchoCommand, WhatCannotRememberIsRefusedInASentence) {
  expect_refused({"plan", "r.yaml", "--set", "data.order=windows"},
                 "--set data.order=windows: data.order is windows, but this model remembers what its rows have read "
                 "before; set data.order: streams");
  expect_refused({"plan", "r.yaml", "--set", "parallel.sequence_ranks=2"},
                 "--set parallel.sequence_ranks=2: parallel.sequence_ranks is 2, but this model remembers whole rows; "
                 "set it to 1");
  expect_refused(
      {"train", "r.yaml", "--run", "none", "--set", "train.global_batch=64"},
      "x.h5: 'train': holds 1,080 bytes, fewer than one context of 32 for each of 64 rows; prepare it with a "
      "larger split, or lower train.global_batch");
  expect_refused({"eval", "run", "--windows", "2", "--spread"},
                 "--spread cannot be used with this model, which reads a split in order and remembers what it has "
                 "read; leave it out");
  expect_refused({"eval", "run", "--memory", "8"},
                 "--memory cannot be used with this model, which has no memory of a length that an evaluation could "
                 "set; leave it out");
}

TEST_F(EchoCommand, AResumedRunKeepsItsRows) {
  fs::copy(*dir / "run", *dir / "other", fs::copy_options::recursive);
  const CommandResult result = run({"train", "r.yaml", "--run", "other", "--resume", "--resume-changed", "--set",
                                    "train.steps=12", "--set", "train.global_batch=2"});
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_NE(result.err.find("use the recipe that the run was started with"), std::string::npos) << result.err;
}

}  // namespace
}  // namespace longstride::testing
