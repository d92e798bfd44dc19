// `sample --prompt` takes sound and pictures as `prepare` makes them, and refuses what the run was not trained on. What
// a run reads of its data is counted.
#include <fmt/format.h>

#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "datasets/formats/png.h"
#include "datasets/formats/wav.h"
#include "launch/run/run_data.h"
#include "tests/support/text_run.h"

namespace longstride::testing::prompt_test {
namespace {

namespace fs = std::filesystem;

std::string recipe_of(const char* kind, int context, int stride) {
  return fmt::format(
      "name: small\ndata: {{kind: {}, path: x.h5, context: {}}}\n"
      "model:\n  kind: sparse_transformer\n  layers: 1\n  width: 16\n  heads: 2\n"
      "  attention: {{integration: interleaved, parts: [local], stride: {}}}\n"
      "train: {{steps: 2, global_batch: 2, lr: 1.0e-3, warmup: 1}}\n",
      kind, context, stride);
}

void run_well(const TemporaryDirectory& dir, const std::vector<std::string>& arguments) {
  const CommandResult result = run_command(arguments, dir.path());
  ASSERT_EQ(result.exit_code, 0) << result.err;
}

void expect_refused(const TemporaryDirectory& dir, const std::vector<std::string>& arguments, const std::string& part) {
  const CommandResult result = run_command(arguments, dir.path());
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_NE(result.err.find(part), std::string::npos) << result.err;
}

std::vector<float> tone(std::size_t count) {
  std::vector<float> out(count);
  for (std::size_t i = 0; i < count; ++i) out[i] = 0.5F * std::sin(0.3F * static_cast<float>(i));
  return out;
}

TEST(Prompts, OfSoundAreDecodedAsThePreparedFiles) {
  const TemporaryDirectory dir;
  for (int i = 0; i < 3; ++i) write_wav(dir / fmt::format("{}.wav", i), tone(2000 + static_cast<std::size_t>(i)), 8000);
  write_text(dir / "r.yaml", recipe_of("audio", 64, 8));
  const CommandResult prepared = run_command(
      {"prepare", "audio", "--input", "0.wav", "1.wav", "2.wav", "--rate", "4000", "--output", "x.h5"}, dir.path());
  if (prepared.err.find("libsndfile") != std::string::npos) GTEST_SKIP() << prepared.err;
  run_well(dir, {"train", "r.yaml", "--run", "run"});
  run_well(dir, {"sample", "run", "--prompt", "0.wav", "--given", "32", "--output", "decoded"});
  const auto dataset = Dataset::open(dir / "x.h5");
  std::string levels;  // levels of 0.wav, at the rate of the dataset
  for (const char* name : split_names) {
    const auto split = dataset->split(name);
    std::vector<std::uint8_t> bytes(static_cast<std::size_t>(split->length(0)));
    if (bytes.size() != 1000) continue;
    split->read(0, 0, 32, bytes.data());
    if (levels.empty()) levels.assign(bytes.begin(), bytes.begin() + 32);
  }
  write_text(dir / "levels", levels);
  run_well(dir, {"sample", "run", "--prompt", "levels", "--output", "raw"});
  EXPECT_EQ(text_of(dir / "decoded/sample-000.wav"), text_of(dir / "raw/sample-000.wav"));
  expect_refused(dir, {"sample", "run", "--prompt", "0.wav"}, "take its beginning with --given");
  write_text(dir / "a.png", "\x89PNG\r\n\x1a\n");
  expect_refused(dir, {"sample", "run", "--prompt", "a.png"}, "begins like PNG, and the model was trained on sound");
}

TEST(Prompts, OfPicturesArePixels) {
  const TemporaryDirectory dir;
  fs::create_directories(dir / "p");
  std::string pixels(8 * 8 * 3, '\0');
  for (int i = 0; i < 4; ++i) {
    for (std::size_t k = 0; k < pixels.size(); ++k) pixels[k] = static_cast<char>(k * 7 + static_cast<std::size_t>(i));
    write_png(dir / fmt::format("p/{}.png", i), 8, 8, 3, reinterpret_cast<const std::uint8_t*>(pixels.data()));
  }
  write_text(dir / "r.yaml", recipe_of("images", 192, 24));
  run_well(dir, {"prepare", "images", "--input", "p", "--size", "8", "--split", "0.5,0.25,0.25", "--output", "x.h5"});
  run_well(dir, {"train", "r.yaml", "--run", "run"});
  run_well(dir, {"sample", "run", "--prompt", "p/3.png", "--count", "2", "--output", "decoded"});
  write_text(dir / "half", pixels.substr(0, 96));
  run_well(dir, {"sample", "run", "--prompt", "half", "--count", "2", "--output", "raw"});
  for (const char* name : {"sample-000.png", "sample-001.png", "grid.png"})
    EXPECT_EQ(text_of(dir / "decoded/" + name), text_of(dir / "raw/" + name)) << name;
  EXPECT_TRUE(fs::exists(dir / "decoded/completions.png"));
  std::string wide(12 * 12 * 3, 'x');
  write_png(dir / "wide.png", 12, 12, 3, reinterpret_cast<const std::uint8_t*>(wide.data()));
  expect_refused(dir, {"sample", "run", "--prompt", "wide.png"}, "wide.png: is 12 x 12 pixels");
}

TEST(Prompts, OfTextAreText) {
  const TemporaryDirectory dir;
  ASSERT_NO_FATAL_FAILURE(prepare_text(dir, text_recipe(1, "steps: 2, global_batch: 2, lr: 1.0e-3, warmup: 1")));
  run_well(dir, {"train", "r.yaml", "--run", "run"});
  write_text(dir / "a.wav", std::string("RIFF\x24\x10\0\0WAVEfmt ", 16));
  expect_refused(dir, {"sample", "run", "--prompt", "a.wav"}, "begins like WAV, and the model was trained on text");
  write_text(dir / "a.txt", std::string("\xff\xfe"
                                        "a\0b\0",
                                        6));
  expect_refused(dir, {"sample", "run", "--prompt", "a.txt"}, "iconv -f UTF-16");
  write_text(dir / "a.gz", std::string("\x1f\x8b\x08\0\0\0\0\0\0\3", 10));
  expect_refused(dir, {"sample", "run", "--prompt", "a.gz"}, "a.gz: is packed (gzip); unpack it first");
  expect_refused(dir, {"sample", "run", "--given", "8"}, "--given is 8, but there is nothing that it is taken from");
  expect_refused(dir, {"sample", "run", "--prompt-text", "four", "--given", "8"}, "has 4 bytes; give fewer");
  EXPECT_TRUE(run_command({"sample", "run", "--prompt-text", "abcdefghij", "--given", "4", "--seed", "2"}, dir.path())
                  .out.starts_with("abcd"));
}

TEST(Passes, AreCountedByPlanTrainAndReport) {
  const TemporaryDirectory dir;
  ASSERT_NO_FATAL_FAILURE(prepare_text(dir, text_recipe(1, "steps: 30, global_batch: 2, lr: 1.0e-3, warmup: 1")));
  const std::vector<std::string> plan = {"plan", "r.yaml", "--device", "cpu", "--peak-tflops", "1"};
  const auto planned = [&](std::vector<std::string> more) {
    more.insert(more.begin(), plan.begin(), plan.end());
    return run_command(more, dir.path()).out;
  };
  EXPECT_NE(planned({}).find("1.1 passes over 3,600 bytes of train"), std::string::npos) << planned({});
  EXPECT_EQ(planned({}).find("warning"), std::string::npos);
  EXPECT_NE(planned({"--set", "train.steps=3000"}).find("warning               107 passes"), std::string::npos);
  EXPECT_NE(planned({"--set", "data.path=y.h5"}).find("y.h5 is not here"), std::string::npos);
  EXPECT_NEAR(nlohmann::json::parse(planned({"--json"})).at("passes").get<double>(), 30 * 2 * 64 / 3600.0, 1e-9);
  const CommandResult trained = run_command({"train", "r.yaml", "--run", "run"}, dir.path());
  EXPECT_NE(trained.err.find("1.1 passes over 3,600 bytes of train"), std::string::npos) << trained.err;
  run_well(dir, {"report", "run", "--output", "r.html"});
  EXPECT_NE(text_of(dir / "r.html").find("<b>1.1</b><span>passes over train"), std::string::npos);
}

// The row of CIFAR-10 over larger pictures; the paper's 128 is no row and stays.
TEST(Strides, OfOtherPicturesAreSaid) {
  const TemporaryDirectory dir;
  write_text(dir / "r.yaml", recipe_of("images", 12288, 96));
  const auto planned = [&](const char* stride) {
    return run_command({"plan", "r.yaml", "--device", "cpu", "--peak-tflops", "1", "--set",
                        std::string("model.attention.stride=") + stride},
                       dir.path())
        .out;
  };
  EXPECT_NE(planned("96").find("set stride: 192"), std::string::npos) << planned("96");
  for (const char* meant : {"128", "192"}) EXPECT_EQ(planned(meant).find("warning"), std::string::npos) << meant;
}

}  // namespace
}  // namespace longstride::testing::prompt_test
