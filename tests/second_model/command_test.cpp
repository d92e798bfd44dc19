// Every command works with a model that is defined only in this folder: `longstride` with one more line in its
// registry.
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>

#include "tests/support/text_run.h"

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

class SecondModel : public TextRun {
 protected:
  SecondModel() : TextRun(recipe) {}
  std::vector<double> losses(const std::string& of) const {
    std::vector<double> out;
    std::istringstream lines(text(of + "/metrics.jsonl"));
    for (std::string line; std::getline(lines, line);)
      if (const Json step = Json::parse(line); step.contains("lr")) out.push_back(step.at("loss").get<double>());
    return out;
  }
};
TEST_F(SecondModel, IsPlannedWithoutAttention) {
  const Json plan = Json::parse(run_well({"plan", "r.yaml", "--json", "--peak-tflops", "1"}).out);
  EXPECT_EQ(plan.at("parameters"), parameters);
  EXPECT_EQ(plan.at("flops_per_step").get<double>(), 6.0 * parameters * 4 * 32);
  EXPECT_EQ(plan.at("attention_density"), 0);
  const std::string text = run_well({"plan", "r.yaml", "--peak-tflops", "1"}).out;
  EXPECT_EQ(text.find("attention"), std::string::npos) << text;
  EXPECT_NE(text.find("(6 x parameters; recompute not counted)"), std::string::npos) << text;
}

TEST_F(SecondModel, LearnsAndIsEvaluated) {
  ASSERT_EQ(losses("run").size(), 6U);
  EXPECT_NEAR(losses("run").front(), std::log(256.0), 1e-5);
  EXPECT_LT(losses("run").back(), losses("run").front() - 0.2);
  const Json score = Json::parse(run_well({"eval", "run", "--json"}).out);
  EXPECT_EQ(score.at("step"), 6);
  EXPECT_LT(score.at("bits_per_byte").get<double>(), 8);
}

TEST_F(SecondModel, ResumesWithTheBitsOfARunThatWasNotStopped) {
  copy_run("run", "stopped");
  fs::remove_all(dir / "stopped/checkpoints/step-00000006");
  run_well({"train", "r.yaml", "--run", "stopped", "--resume"});
  for (const char* file : {"model.safetensors", "ema.safetensors", "optimizer-00000-of-00001.safetensors"}) {
    EXPECT_FALSE(checkpoint_file("run", 6, file).empty());
    EXPECT_EQ(checkpoint_file("stopped", 6, file), checkpoint_file("run", 6, file)) << file;
  }
}

TEST_F(SecondModel, TrainsOnTwoRanksToTheSameLosses) {
  run_well({"train", "r.yaml", "--run", "two"}, 2);
  const std::vector<double> one = losses("run"), two = losses("two");
  ASSERT_EQ(one.size(), two.size());
  for (std::size_t i = 0; i < one.size(); ++i) EXPECT_NEAR(two[i], one[i], 1e-5 * one[i]) << i;
}

TEST_F(SecondModel, DrawsTheSameSamplesForTheSameSeed) {
  for (const char* folder : {"first", "again"})
    run_well({"sample", "run", "--count", "2", "--length", "20", "--seed", "3", "--output", folder});
  const std::string first = text("first/sample-001.txt");
  EXPECT_EQ(first.size(), 20U);
  EXPECT_EQ(first, text("again/sample-001.txt"));
}

TEST_F(SecondModel, AStepTakesThePlannedMemory) {
  for (const char* recompute : {"true", "false"}) {
    const std::string setting = std::string("model.recompute=") + recompute;
    const Json bench =
        Json::parse(run_well({"bench", "step", "r.yaml", "--steps", "3", "--json", "--set", setting}).out);
    EXPECT_EQ(bench.at("planned_bytes"), bench.at("used_bytes"));
    EXPECT_EQ(bench.at("recompute"), recompute);
  }
}

TEST_F(SecondModel, IsReportedAndExported) {
  run_well({"report", "run"});
  const std::string page = text("run/report.html");
  EXPECT_NE(page.find("<td>2 layers, width 16</td>"), std::string::npos);
  EXPECT_EQ(page.find(">attention</th>"), std::string::npos);
  run_well({"export", "r.yaml", "--steps", "2", "--output", "exported"});
  EXPECT_GT(fs::file_size(dir / "exported/initial.safetensors"), 4U * parameters);
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
  expect_refused({"plan", "r.yaml", "--set", "model.kind=bigrams"},
                 "--set model.kind=bigrams: model.kind is bigrams, but must be decoder or sparse_transformer or "
                 "encoder or bigram; did "
                 "you mean 'bigram'?");
}

}  // namespace
}  // namespace longstride::testing
