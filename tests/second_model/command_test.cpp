// Every command works with a model that is defined only in this folder: `longstride` with one more line in its
// registry.
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>

#include "tests/support/command.h"

namespace longstride::testing {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

constexpr const char* recipe = R"(name: pairs
data: {kind: bytes, path: x.h5, context: 32}
model: {kind: bigram, layers: 2, width: 16, dropout: 0.1}
train: {steps: 6, global_batch: 4, micro_batch: 2, lr: 1.0e-2, warmup: 1, ema: 0.5, log_every: 1, checkpoint_every: 3, keep: 5}
)";
// Embeddings with the start, two layers of a norm and two products, the last norm and the output.
constexpr int parameters = 257 * 16 + 2 * (2 * 16 + (32 * 16 + 32) + (16 * 32 + 16)) + 2 * 16 + 256 * 16;

class SecondModel : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    dir = new TemporaryDirectory;
    std::string text;
    for (int i = 0; i < 4000; ++i) text += static_cast<char>('a' + i * i % 23);
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
  static CommandResult good(const std::vector<std::string>& arguments) {
    const CommandResult result = run(arguments);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return result;
  }
  static void expect_refused(const std::vector<std::string>& arguments, const std::string& sentence) {
    const CommandResult result = run(arguments);
    EXPECT_EQ(result.exit_code, 2);
    EXPECT_EQ(result.err, "longstride: " + sentence + "\n");
  }
  static std::vector<double> losses(const std::string& of) {
    std::vector<double> out;
    std::istringstream lines(text_of(*dir / (of + "/metrics.jsonl")));
    for (std::string line; std::getline(lines, line);)
      if (const Json step = Json::parse(line); step.contains("lr")) out.push_back(step.at("loss").get<double>());
    return out;
  }

  static TemporaryDirectory* dir;
};
TemporaryDirectory* SecondModel::dir = nullptr;

TEST_F(SecondModel, IsPlannedWithoutAttention) {
  const Json plan = Json::parse(good({"plan", "r.yaml", "--json", "--peak-tflops", "1"}).out);
  EXPECT_EQ(plan.at("parameters"), parameters);
  EXPECT_EQ(plan.at("flops_per_step").get<double>(), 6.0 * parameters * 4 * 32);
  EXPECT_EQ(plan.at("attention_density"), 0);
  const std::string text = good({"plan", "r.yaml", "--peak-tflops", "1"}).out;
  EXPECT_EQ(text.find("attention"), std::string::npos) << text;
  EXPECT_NE(text.find("(6 x parameters; recompute not counted)"), std::string::npos) << text;
}

TEST_F(SecondModel, LearnsAndIsEvaluated) {
  ASSERT_EQ(losses("run").size(), 6U);
  EXPECT_NEAR(losses("run").front(), std::log(256.0), 1e-5);
  EXPECT_LT(losses("run").back(), losses("run").front() - 0.2);
  const Json score = Json::parse(good({"eval", "run", "--json"}).out);
  EXPECT_EQ(score.at("step"), 6);
  EXPECT_LT(score.at("bits_per_byte").get<double>(), 8);
}

TEST_F(SecondModel, ResumesWithTheBitsOfARunThatWasNotStopped) {
  fs::copy(*dir / "run", *dir / "stopped", fs::copy_options::recursive);
  fs::remove_all(*dir / "stopped/checkpoints/step-00000006");
  good({"train", "r.yaml", "--run", "stopped", "--resume"});
  for (const char* file : {"model.safetensors", "ema.safetensors", "optimizer-00000-of-00001.safetensors"}) {
    const auto bytes = [&](const char* of) {
      return text_of(*dir / (std::string(of) + "/checkpoints/step-00000006/" + file));
    };
    EXPECT_FALSE(bytes("run").empty());
    EXPECT_EQ(bytes("stopped"), bytes("run")) << file;
  }
}

TEST_F(SecondModel, TrainsOnTwoRanksToTheSameLosses) {
  const CommandResult trained = run({"train", "r.yaml", "--run", "two"}, 2);
  ASSERT_EQ(trained.exit_code, 0) << trained.err;
  const std::vector<double> one = losses("run"), two = losses("two");
  ASSERT_EQ(one.size(), two.size());
  for (std::size_t i = 0; i < one.size(); ++i) EXPECT_NEAR(two[i], one[i], 1e-5 * one[i]) << i;
}

TEST_F(SecondModel, DrawsTheSameSamplesForTheSameSeed) {
  for (const char* folder : {"first", "again"})
    good({"sample", "run", "--count", "2", "--length", "20", "--seed", "3", "--output", folder});
  const std::string first = text_of(*dir / "first/sample-001.txt");
  EXPECT_EQ(first.size(), 20U);
  EXPECT_EQ(first, text_of(*dir / "again/sample-001.txt"));
}

TEST_F(SecondModel, AStepTakesThePlannedMemory) {
  for (const char* recompute : {"true", "false"}) {
    const std::string setting = std::string("model.recompute=") + recompute;
    const Json bench = Json::parse(good({"bench", "step", "r.yaml", "--steps", "3", "--json", "--set", setting}).out);
    EXPECT_EQ(bench.at("planned_bytes"), bench.at("used_bytes"));
    EXPECT_EQ(bench.at("recompute"), recompute);
  }
}

TEST_F(SecondModel, IsReportedAndExported) {
  good({"report", "run"});
  const std::string page = text_of(*dir / "run/report.html");
  EXPECT_NE(page.find("<td>2 layers, width 16</td>"), std::string::npos);
  EXPECT_EQ(page.find(">attention</th>"), std::string::npos);
  good({"export", "r.yaml", "--steps", "2", "--output", "exported"});
  EXPECT_GT(fs::file_size(*dir / "exported/initial.safetensors"), 4U * parameters);
}

TEST_F(SecondModel, WhatItLacksIsRefusedInASentence) {
  expect_refused({"show", "pattern", "r.yaml"}, "this model cannot show what attends to what");
  expect_refused({"attention", "run"}, "this model cannot show what it attends to");
  expect_refused({"bench", "attention", "r.yaml"},
                 "this model cannot run its attention alone; time its whole step with `bench step`");
  expect_refused(
      {"plan", "r.yaml", "--ranks", "2", "--set", "parallel.sequence_ranks=2", "--set", "train.micro_batch=1"},
      "this model cannot divide sequences between ranks; set parallel.sequence_ranks to 1");
}

TEST_F(SecondModel, ItsRecipeHasItsOwnKeys) {
  expect_refused({"plan", "r.yaml", "--set", "model.heads=2"},
                 "--set model.heads=2: unknown key 'heads' in model; choose from kind, layers, width, dropout, "
                 "recompute");
  expect_refused({"plan", "r.yaml", "--set", "model.width=12"},
                 "--set model.width=12: model.width is 12, but must be a multiple of 8");
  expect_refused(
      {"plan", "r.yaml", "--set", "model.kind=bigrams"},
      "--set model.kind=bigrams: model.kind is bigrams, but must be decoder or sparse_transformer or bigram; did "
      "you mean 'bigram'?");
}

}  // namespace
}  // namespace longstride::testing
