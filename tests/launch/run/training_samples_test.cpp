// Samples that a run draws while it trains: train.sample_every.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "launch/commands/toy_data.h"
#include "launch/report/run_history.h"
#include "tests/support/text_run.h"

namespace longstride::testing {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

class TrainingSamples : public TextRun {
 protected:
  TrainingSamples()
      : TextRun(text_recipe(2, "steps: 5, global_batch: 2, lr: 1.0e-3, warmup: 1, checkpoint_every: 3"), {}) {}

  std::string weights(const std::string& run, int step) const {
    return checkpoint_file(run, step, "model.safetensors");
  }
  std::string events(const std::string& run) const {
    for (const auto& entry : fs::directory_iterator(dir / run))
      if (entry.path().filename().string().starts_with("events.")) return text_of(entry.path().string());
    return "";
  }
};
TEST_F(TrainingSamples, AreWrittenAndShownAndChangeNoBitOfTheTraining) {
  run_well({"train", "r.yaml", "--run", "without"});
  run_well({"train", "r.yaml", "--run", "with", "--set", "train.sample_every=2", "--set", "train.sample_count=3"});
  for (int step : {3, 5}) {
    EXPECT_EQ(weights("with", step), weights("without", step));
    EXPECT_FALSE(weights("with", step).empty());
  }
  std::vector<std::string> folders;
  for (const auto& entry : fs::directory_iterator(dir / "with/samples"))
    folders.push_back(entry.path().filename().string());
  std::sort(folders.begin(), folders.end());
  EXPECT_EQ(folders, (std::vector<std::string>{"step-00000002", "step-00000004", "step-00000005"}));
  for (int s = 0; s < 3; ++s) EXPECT_EQ(text(fmt::format("with/samples/step-00000005/sample-00{}.txt", s)).size(), 64U);
  EXPECT_FALSE(fs::exists(dir / "without/samples"));
  EXPECT_NE(events("with").find("samples/002"), std::string::npos);
  EXPECT_EQ(events("without").find("samples/"), std::string::npos);
  run_well({"report", "with"});
  const std::string page = text("with/report.html");
  EXPECT_NE(page.find("<h3>step-00000002</h3>"), std::string::npos);
  EXPECT_NE(page.find("<h3>step-00000005</h3>"), std::string::npos);
}

// The last ones are what `sample` draws from the last checkpoint with the run's seed.
TEST_F(TrainingSamples, AreThoseOfTheSampleCommand) {
  run_well({"train", "r.yaml", "--run", "same", "--set", "train.sample_every=5", "--set", "train.sample_length=40",
            "--set", "train.seed=7"});
  run_well({"sample", "same", "--seed", "7", "--length", "40", "--output", "drawn"});
  const std::string drawn = text("drawn/sample-000.txt");
  EXPECT_EQ(drawn.size(), 40U);
  EXPECT_EQ(text("same/samples/step-00000005/sample-000.txt"), drawn);
}

// With few samples training takes the most memory, with many the caches of keys and values do.
TEST_F(TrainingSamples, PlannedMemoryIsUsedMemory) {
  std::vector<std::int64_t> used;
  for (const char* count : {"1", "64"}) {
    const std::string run = std::string("memory-") + count;
    const std::vector<std::string> with = {
        "--set", "train.sample_every=4", "--set", std::string("train.sample_count=") + count, "--device", "cpu"};
    std::vector<std::string> training = {"train", "r.yaml", "--run", run}, planning = {"plan", "r.yaml", "--json"};
    training.insert(training.end(), with.begin(), with.end());
    planning.insert(planning.end(), with.begin(), with.end());
    run_well(training);
    const RunHistory history = read_history(dir / run);
    EXPECT_EQ(history.planned_bytes, history.used_bytes);
    EXPECT_EQ(Json::parse(run_well(planning).out).at("bytes_per_rank").at("block"), history.used_bytes);
    used.push_back(history.used_bytes);
  }
  EXPECT_GT(used[1], used[0]);
}

TEST_F(TrainingSamples, AResumedRunDrawsThemAgain) {
  const std::vector<std::string> start = {"train", "r.yaml", "--run", "resumed", "--set", "train.sample_every=1"};
  run_well(start);
  const std::string last = text("resumed/samples/step-00000005/sample-000.txt");
  fs::remove_all(dir / "resumed/checkpoints/step-00000005");
  fs::remove_all(dir / "resumed/samples/step-00000005");
  std::vector<std::string> again = start;
  again.emplace_back("--resume");
  run_well(again);
  EXPECT_EQ(text("resumed/samples/step-00000005/sample-000.txt"), last);
  EXPECT_FALSE(last.empty());
}

TEST_F(TrainingSamples, RankZeroDrawsThemForSeveralRanks) {
  run_well({"train", "r.yaml", "--run", "two", "--set", "train.sample_every=5"}, 2);
  EXPECT_EQ(text("two/samples/step-00000005/sample-000.txt").size(), 64U);
}

TEST_F(TrainingSamples, OfAModelThatRemembersMayBeLongerThanItsContext) {
  write_text(dir / "remembers.yaml", R"(name: remembers
data: {kind: bytes, path: x.h5, context: 32, order: streams}
model: {kind: decoder, layers: 1, width: 16, heads: 2, positions: none, distance: {table: sinusoid}, memory: {length: 32}}
train: {steps: 1, global_batch: 1, lr: 1.0e-3, warmup: 1, sample_every: 1, sample_count: 1, sample_length: 100}
)");
  run_well({"train", "remembers.yaml", "--run", "remembers"});
  EXPECT_EQ(text("remembers/samples/step-00000001/sample-000.txt").size(), 100U);
}

TEST_F(TrainingSamples, PicturesAreKeptAsPictures) {
  const std::string data = made_up_dataset(DataKind::cifar10, dir / "made");
  write_text(dir / "pictures.yaml", R"(name: pictures
data: {kind: cifar10, path: )" + data + R"(, context: 3072}
model:
  kind: sparse_transformer
  layers: 1
  width: 16
  heads: 2
  attention: {integration: interleaved, parts: [column, local], stride: 96}
train: {steps: 1, global_batch: 1, lr: 1.0e-3, warmup: 1, evaluate_windows: 1, sample_every: 1, sample_count: 2}
)");
  run_well({"train", "pictures.yaml", "--run", "pictures"});
  for (const char* name : {"sample-000.png", "sample-001.png", "grid.png"})
    EXPECT_TRUE(text(("pictures/samples/step-00000001/" + std::string(name))).starts_with("\x89PNG"));
  EXPECT_NE(events("pictures").find("\x89PNG"), std::string::npos);
  expect_refused_with({"plan", "pictures.yaml", "--set", "train.sample_length=96"},
                      "train.sample_length is 96, but a picture has 3072 bytes; set train.sample_length: 0 for all");
}

TEST_F(TrainingSamples, WhatCannotBeDrawnIsRefused) {
  expect_refused_with({"plan", "r.yaml", "--set", "train.sample_length=65"},
                      "train.sample_length is 65, but the context has 64 bytes; set train.sample_length: 0 for all");
  expect_refused_with({"plan", "r.yaml", "--set", "train.sample_count=65"},
                      "train.sample_count is 65, but must be from 1 to 64 samples");
  expect_refused_with(
      {"plan", "r.yaml", "--ranks", "2", "--set", "parallel.sequence_ranks=2", "--set", "train.sample_every=2"},
      "train.sample_every is 2, but with parallel.sequence_ranks 2 no rank holds a whole sequence to draw");
}

}  // namespace
}  // namespace longstride::testing
