// Every command works with an objective that is defined only in this folder: a class of each row instead of the next
// byte.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <random>
#include <sstream>

#include "tests/support/command.h"

namespace longstride::testing {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr int context = 16, rows_of_test = 50;
constexpr const char* recipe = R"(name: halves
data: {kind: bytes, path: x.h5, context: 16}
objective: {kind: halves, noise: 0.05}
model: {kind: classifier}
train: {steps: 30, global_batch: 16, micro_batch: 8, lr: 2.0e-2, warmup: 1, log_every: 1, checkpoint_every: 10, evaluate_every: 10, keep: 5, keep_best: true}
)";
constexpr const char* decoder = R"(name: decoder
data: {kind: bytes, path: x.h5, context: 16}
model: {kind: decoder, layers: 1, width: 8, heads: 1, attention: {integration: merged, parts: [dense], stride: 4}}
train: {steps: 1, global_batch: 4, lr: 1.0e-3, warmup: 1}
)";

class Objectives : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    dir = new TemporaryDirectory;
    std::mt19937 draw(1);
    std::string text;
    for (int i = 0; i < 20 * rows_of_test * context; ++i) text += static_cast<char>('a' + draw() % 26);
    write_text(*dir / "text.bin", text);
    write_text(*dir / "r.yaml", recipe);
    write_text(*dir / "decoder.yaml", decoder);
    good({"prepare", "bytes", "--input", "text.bin", "--output", "x.h5"});
    good({"train", "r.yaml", "--run", "run"});
    good({"train", "decoder.yaml", "--run", "decoder"});
  }
  static void TearDownTestSuite() { delete dir; }

  static CommandResult run(const std::vector<std::string>& arguments, int ranks = 1) {
    return run_command(arguments, dir->path(), 120, ranks);
  }
  static CommandResult good(const std::vector<std::string>& arguments, int ranks = 1) {
    const CommandResult result = run(arguments, ranks);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return result;
  }
  static void expect_refused(const std::vector<std::string>& arguments, const std::string& sentence) {
    const CommandResult result = run(arguments);
    EXPECT_EQ(result.exit_code, 2);
    EXPECT_EQ(result.err, "longstride: " + sentence + "\n");
  }
  // The lines of a run's metrics that have a key.
  static std::vector<Json> lines_with(const std::string& of, const char* key) {
    std::vector<Json> found;
    std::istringstream lines(text_of(*dir / (of + "/metrics.jsonl")));
    for (std::string line; std::getline(lines, line);)
      if (Json parsed = Json::parse(line); parsed.contains(key)) found.push_back(std::move(parsed));
    return found;
  }
  static std::vector<std::string> keys_of(const Json& line) {
    std::vector<std::string> keys;
    for (const auto& [key, value] : line.items()) keys.push_back(key);
    return keys;
  }
  // The values of a file of losses, whose header must have this shape.
  static std::vector<float> losses_in(const std::string& file, const std::string& shape) {
    const std::string bytes = text_of(*dir / file);
    const std::size_t begin =
        10 + static_cast<unsigned char>(bytes.at(8)) + 256 * static_cast<unsigned char>(bytes.at(9));
    EXPECT_EQ(begin % 64, 0U);
    EXPECT_EQ(bytes.substr(0, 8), std::string("\x93NUMPY\x01\x00", 8));
    EXPECT_NE(bytes.find("{'descr': '<f4', 'fortran_order': False, 'shape': " + shape + ", }"), std::string::npos);
    std::vector<float> values((bytes.size() - begin) / sizeof(float));
    std::memcpy(values.data(), bytes.data() + begin, values.size() * sizeof(float));
    return values;
  }

  static TemporaryDirectory* dir;
};
TemporaryDirectory* Objectives::dir = nullptr;

TEST_F(Objectives, FiguresHaveTheirKeysInOrder) {
  const std::vector<Json> steps = lines_with("run", "lr"), evaluations = lines_with("run", "split");
  ASSERT_EQ(steps.size(), 30U);
  EXPECT_EQ(keys_of(steps.front()), (std::vector<std::string>{"step", "loss", "lr", "grad_norm", "tokens_per_second",
                                                              "mean_loss", "tokens", "time", "host_peak_bytes"}));
  EXPECT_NEAR(steps.front().at("loss").get<double>(), std::log(2.0), 0.1);
  ASSERT_EQ(evaluations.size(), 3U);
  EXPECT_EQ(keys_of(evaluations.front()),
            (std::vector<std::string>{"step", "split", "share_of_right_answers", "loss", "bytes", "seconds", "time"}));
  // All but the noise, which the evaluation has too.
  const double share = evaluations.back().at("share_of_right_answers").get<double>();
  EXPECT_GT(share, 0.85);
  EXPECT_LT(share, 1);
}

TEST_F(Objectives, TheFirstFigureDecidesWhichCheckpointIsBest) {
  const std::vector<Json> evaluations = lines_with("run", "split");
  const Json* best = &evaluations.front();
  for (const Json& line : evaluations) {
    const double share = line.at("share_of_right_answers").get<double>();
    const std::string state =
        text_of(*dir / ("run/checkpoints/step-000000" + std::to_string(line.at("step").get<int>()) + "/state.json"));
    EXPECT_EQ(Json::parse(state).at("valid_loss").get<double>(), -share);
    if (share >= best->at("share_of_right_answers").get<double>()) best = &line;
  }
  EXPECT_LT(evaluations.front().at("share_of_right_answers"), best->at("share_of_right_answers"));
  EXPECT_EQ(Json::parse(good({"eval", "run", "--checkpoint", "best", "--json"}).out).at("step"), best->at("step"));
}

TEST_F(Objectives, ResumesWithTheBitsOfARunThatWasNotStopped) {
  fs::copy(*dir / "run", *dir / "stopped", fs::copy_options::recursive);
  for (const char* step : {"20", "30"}) fs::remove_all(*dir / (std::string("stopped/checkpoints/step-000000") + step));
  good({"train", "r.yaml", "--run", "stopped", "--resume"});
  for (const char* file : {"model.safetensors", "optimizer-00000-of-00001.safetensors"}) {
    const auto bytes = [&](const char* of) {
      return text_of(*dir / (std::string(of) + "/checkpoints/step-00000030/" + file));
    };
    EXPECT_FALSE(bytes("run").empty());
    EXPECT_EQ(bytes("stopped"), bytes("run")) << file;
  }
  const CommandResult other = run({"train", "r.yaml", "--run", "stopped", "--resume", "--set", "objective.noise=0.1"});
  EXPECT_EQ(other.exit_code, 2);
  EXPECT_NE(other.err.find("objective.noise is 0.1, but the run in stopped began with 0.05"), std::string::npos)
      << other.err;
}

TEST_F(Objectives, RanksAndMicroBatchesHaveTheSameLosses) {
  good({"train", "r.yaml", "--run", "two", "--set", "train.micro_batch=4"}, 2);
  const std::vector<Json> one = lines_with("run", "lr"), two = lines_with("two", "lr");
  ASSERT_EQ(one.size(), two.size());
  for (std::size_t i = 0; i < one.size(); ++i)
    for (const char* key : {"loss", "mean_loss"})
      EXPECT_NEAR(two[i].at(key).get<double>(), one[i].at(key).get<double>(), 1e-4) << key << " of step " << i + 1;
}

TEST_F(Objectives, StepsAndEvaluationsTakeThePlannedMemory) {
  const Json used = lines_with("run", "used_bytes").back();
  EXPECT_EQ(used.at("used_bytes"), used.at("planned_bytes"));
}

TEST_F(Objectives, AnEvaluationPrintsItsFiguresAndWritesALossPerRow) {
  const Json scored = Json::parse(good({"eval", "run", "--json", "--losses", "rows.npy"}).out);
  const std::vector<float> losses = losses_in("rows.npy", "(" + std::to_string(rows_of_test) + ", 1)");
  ASSERT_EQ(losses.size(), rows_of_test);
  double sum = 0;
  int right = 0, asked = 0;
  for (const float loss : losses) {
    sum += static_cast<double>(loss);
    asked += loss > 0 ? 1 : 0;
    right += loss > 0 && loss < std::log(2.0f) ? 1 : 0;
  }
  EXPECT_GT(asked, rows_of_test / 2);
  EXPECT_LT(asked, rows_of_test);
  EXPECT_NEAR(scored.at("loss").get<double>(), sum / asked, 1e-12);
  EXPECT_EQ(scored.at("share_of_right_answers").get<double>(), static_cast<double>(right) / asked);
  EXPECT_EQ(scored.at("bytes"), rows_of_test * context);
  EXPECT_NE(good({"eval", "run"}).out.find(" Share of right answers (0."), std::string::npos);
  expect_refused({"eval", "run", "--losses", "rows.npy"},
                 "rows.npy: already exists; choose another --losses, or replace it with --force");
  expect_refused({"eval", "run", "--losses", "no/rows.npy", "--force"},
                 "no/rows.npy: there is no folder no; make it, or choose another --losses");
  expect_refused({"eval", "run", "--min-context", "4"},
                 "--min-context is 4, but this model is asked about whole windows; leave it out");
}

TEST_F(Objectives, LossesOfADecoderAreOnePerPosition) {
  const Json scored = Json::parse(good({"eval", "decoder", "--json", "--losses", "all.npy"}).out);
  const std::vector<float> losses = losses_in("all.npy", "(" + std::to_string(rows_of_test) + ", 16)");
  double sum = 0;
  for (const float loss : losses) sum += static_cast<double>(loss);
  EXPECT_NEAR(scored.at("loss").get<double>(), sum / (rows_of_test * context), 1e-12);
  good({"eval", "decoder", "--losses", "ranks.npy"}, 2);
  // A product's rounding may depend on how many rows it has.
  const std::vector<float> by_ranks = losses_in("ranks.npy", "(" + std::to_string(rows_of_test) + ", 16)");
  for (std::size_t i = 0; i < losses.size(); ++i) ASSERT_FLOAT_EQ(by_ranks[i], losses[i]) << i;
  // Windows that overlap score a part of their bytes each.
  const Json more = Json::parse(good({"eval", "decoder", "--json", "--min-context", "12", "--losses", "more.npy"}).out);
  std::vector<float> parts = losses_in("more.npy", "(197, 16)");
  const auto asked = std::remove_if(parts.begin(), parts.end(), [](float loss) { return std::isnan(loss); });
  EXPECT_EQ(asked - parts.begin(), more.at("bytes").get<std::ptrdiff_t>());
  EXPECT_TRUE(std::isnan(losses_in("more.npy", "(197, 16)")[16]));
}

TEST_F(Objectives, ShorterWindowsAreScoredByThemselves) {
  good({"eval", "decoder", "--losses", "whole.npy", "--force"});
  const Json scored = Json::parse(good({"eval", "decoder", "--json", "--context", "8", "--losses", "halves.npy"}).out);
  EXPECT_EQ(scored.at("context"), 8);
  EXPECT_NE(text_of(*dir / "decoder/evaluations.jsonl").find(",\"context\":8}\n"), std::string::npos);
  const std::vector<float> whole = losses_in("whole.npy", "(" + std::to_string(rows_of_test) + ", 16)"),
                           halves = losses_in("halves.npy", "(" + std::to_string(2 * rows_of_test) + ", 8)");
  // A byte reads none behind itself, so the first half of a window does not know that the other is gone.
  for (std::size_t i = 0; i < whole.size(); i += i % 16 == 7 ? 9 : 1) ASSERT_NEAR(halves[i], whole[i], 1e-5F) << i;
  EXPECT_NE(good({"eval", "decoder", "--context", "8"}).out.find(", context 8: "), std::string::npos);
  expect_refused({"eval", "decoder", "--context", "17"},
                 "--context is 17, but the run's windows have 16 bytes; choose at most that many");
}

TEST_F(Objectives, ReportsShowItsFigures) {
  good({"eval", "run"});
  good({"report", "run"});
  const std::string page = text_of(*dir / "run/report.html");
  for (const char* shown : {"<span>Share of right answers, valid</span>", "Share of right answers by step",
                            "loss by step", "<th>Share of right answers</th>"})
    EXPECT_NE(page.find(shown), std::string::npos) << shown;
  good({"report", "run", "decoder", "--output", "both.html"});
  const std::string both = text_of(*dir / "both.html");
  for (const char* shown : {"<th>valid, best</th>", "Share of right answers or bits per byte, valid"})
    EXPECT_NE(both.find(shown), std::string::npos) << shown;
}

TEST_F(Objectives, MistakesAreRefusedInASentence) {
  const auto refuse = [](const std::string& base, std::vector<std::string> settings, const std::string& sentence) {
    std::vector<std::string> arguments = {"plan", base};
    for (std::string& setting : settings) arguments.insert(arguments.end(), {"--set", std::move(setting)});
    expect_refused(arguments, sentence);
  };
  refuse("r.yaml", {"objective.kind=halfs"},
         "--set objective.kind=halfs: objective.kind is halfs, but must be next_byte or masked or classes or labels or "
         "spans or sentences or "
         "halves; did you mean "
         "'halves'?");
  refuse("r.yaml", {"objective.share=0.1"},
         "--set objective.share=0.1: unknown key 'share' in objective; choose from kind, noise");
  refuse("decoder.yaml", {"objective={kind: next_byte, noise: 0.1}"},
         "--set objective={kind: next_byte, noise: 0.1}: unknown key 'noise' in objective; choose from kind");
  refuse("decoder.yaml", {"objective.kind=halves"},
         "--set objective.kind=halves: objective.kind is halves, but must be next_byte, which model.kind decoder can "
         "answer");
  refuse(
      "r.yaml", {"objective={kind: next_byte}"},
      "--set objective={kind: next_byte}: objective.kind is next_byte, but must be halves, which model.kind classifier "
      "can answer");
  refuse(
      "r.yaml", {"parallel.sequence_ranks=2", "train.micro_batch=1"},
      "--set parallel.sequence_ranks=2: parallel.sequence_ranks is 2, but must be 1 with objective.kind halves, whose "
      "rows cannot be divided");
  refuse(
      "r.yaml", {"train.stages=[{until: 10, context: 8}]"},
      "--set train.stages=[{until: 10, context: 8}]: train.stages cuts rows into shorter sequences, but objective.kind "
      "halves asks whole rows; give such stages a global_batch of their own");
}

}  // namespace
}  // namespace longstride::testing
