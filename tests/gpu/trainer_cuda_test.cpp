// Whole runs on the GPU: files, metrics, resuming, and a gradient that is not finite.
#include "datasets/objectives/kinds.h"
#include "framework/train/trainer.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "framework/core/errors.h"
#include "framework/models/decoder/decoder.h"
#include "tests/gpu/gpu.h"
#include "tests/support/temporary_directory.h"
#include "tests/support/toy_model.h"

namespace longstride::test {
namespace {

namespace fs = std::filesystem;

class Rows : public BatchSource {
 public:
  std::int64_t context() const override { return 64; }
  std::int64_t epoch_rows() const override { return 100; }
  void read(std::int64_t step, std::int64_t, std::int64_t first, const Batch& out) const override {
    for (std::int64_t r = 0; r < out.rows(); ++r) {
      const auto row = toy_tokens(context(), 1000 + static_cast<std::uint64_t>(8 * step + first + r));
      write_row(out, r, row.data(), 0, true);
    }
  }
};

TrainingOutcome train_in(const std::string& run, double lr, bool resume = false, std::int64_t sample_every = 0) {
  DecoderConfig config = toy_config();
  config.context = 64;
  config.width = 64;
  config.dropout = 0.1;
  Decoder model(config);
  const Rows rows;
  const auto comm = make_single_communicator();
  TrainerSetup setup;
  setup.model = &model;
  setup.data = &rows;
  setup.objective = &default_objective();
  setup.comm = comm.get();
  setup.device = Device::cuda;
  setup.config.steps = 20;
  setup.config.global_batch = 2;
  setup.config.lr = lr;
  setup.config.warmup = 1;
  setup.config.log_every = 5;
  setup.config.checkpoint_every = 8;
  setup.run = run;
  setup.recipe = "name: toy\n";
  setup.resume = resume;
  setup.config.sample_every = sample_every;
  setup.config.sample_count = 20;  // a batch of 16 and one of 4
  setup.keep_samples = [&](std::int64_t step, const Samples& samples) {
    const auto& bytes = samples.bytes.back();
    return std::vector<Media>{{fmt::format("samples/{}", step), std::string(bytes.begin(), bytes.end())}};
  };
  return train(setup);
}

std::string text_of(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

TEST(TrainerOnTheGpu, ReportsSavesAndResumesToTheSameBits) {
  LONGSTRIDE_NEEDS_GPU();
  const testing::TemporaryDirectory run;
  EXPECT_EQ(train_in(run.path(), 1e-3).step, 20);
  std::vector<nlohmann::json> lines;
  std::ifstream in(run / "metrics.jsonl");
  for (std::string line; std::getline(in, line);) lines.push_back(nlohmann::json::parse(line));
  ASSERT_EQ(lines.size(), 6u);  // the device, four reports, memory
  EXPECT_EQ(lines[0].at("precision"), "bf16");
  EXPECT_GT(lines[0].at("planned_bytes").get<std::int64_t>(), 32 << 20);
  for (std::size_t i = 1; i < 5; ++i) {
    EXPECT_EQ(lines[i].at("step"), 5 * i);
    EXPECT_GT(lines[i].at("loss").get<double>(), 1);
    EXPECT_LT(lines[i].at("loss").get<double>(), 7);
    EXPECT_NEAR(lines[i].at("mean_loss").get<double>(), 4, 3);
    EXPECT_LE(lines[i].at("device_peak_bytes").get<std::int64_t>(), lines[0].at("planned_bytes").get<std::int64_t>());
  }
  const fs::path last = fs::path(run.path()) / "checkpoints/step-00000020";
  const std::string model = text_of(last / "model.safetensors");
  const std::string moments = text_of(last / "optimizer-00000-of-00001.safetensors");
  ASSERT_FALSE(model.empty());
  fs::remove_all(last);
  EXPECT_EQ(train_in(run.path(), 1e-3, true).step, 20);
  EXPECT_EQ(text_of(last / "model.safetensors"), model);
  EXPECT_EQ(text_of(last / "optimizer-00000-of-00001.safetensors"), moments);
}

TEST(TrainerOnTheGpu, SamplesChangeNoBitsAndFitThePlannedMemory) {
  LONGSTRIDE_NEEDS_GPU();
  const testing::TemporaryDirectory without, with;
  train_in(without.path(), 1e-3);
  train_in(with.path(), 1e-3, false, 3);
  const std::string last = "checkpoints/step-00000020/";
  for (const char* file : {"model.safetensors", "optimizer-00000-of-00001.safetensors"}) {
    EXPECT_EQ(text_of(fs::path(with.path()) / (last + file)), text_of(fs::path(without.path()) / (last + file)));
    EXPECT_FALSE(text_of(fs::path(with.path()) / (last + file)).empty());
  }
  std::string line, memory;
  for (std::ifstream in(with / "metrics.jsonl"); std::getline(in, line);) memory = line;
  const nlohmann::json planned = nlohmann::json::parse(memory);
  // The plan counts drawing position by position, and one kernel may take less.
  EXPECT_LE(planned.at("used_bytes").get<std::int64_t>(), planned.at("planned_bytes").get<std::int64_t>());
}

TEST(TrainerOnTheGpu, AGradientThatIsNotFiniteEndsTheRunAtTheNextReport) {
  LONGSTRIDE_NEEDS_GPU();
  const testing::TemporaryDirectory run;
  try {
    train_in(run.path(), 1e38);
    FAIL() << "trained with lr 1e38";
  } catch (const UserError& error) {
    const std::string text = error.what();
    EXPECT_NE(text.find("is not finite; there is no checkpoint in " + run.path() + ". Lower train.lr"),
              std::string::npos)
        << text;
  }
}

}  // namespace
}  // namespace longstride::test
