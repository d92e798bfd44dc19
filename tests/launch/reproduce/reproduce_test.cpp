// `longstride reproduce`, `attention`, `report` and `export` on runs at toy size.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <numbers>

#include "datasets/formats/png.h"
#include "framework/core/errors.h"
#include "framework/core/files/safetensors.h"
#include "launch/report/run_history.h"
#include "launch/reproduce/earlier_results.h"
#include "launch/reproduce/reproduction.h"
#include "tests/support/command.h"
#include "tests/support/sanitized.h"

namespace longstride::testing {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

const std::string recipes = LONGSTRIDE_SOURCE_DIR "/recipes";

CommandResult reproduce(const std::string& directory, std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), "reproduce");
  for (const char* more : {"--recipes", recipes.c_str(), "--device", "cpu"}) arguments.emplace_back(more);
  return run_command(arguments, directory, 500);
}

// One run of the six rows of table 2, two steps each, for all tests that only read it.
class Reproduced : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    dir = new TemporaryDirectory;
    result = reproduce(dir->path(), {"table2", "--scale", "smoke", "--set", "train.steps=2", "--set", "train.warmup=1",
                                     "--windows", "1"});
  }
  static void TearDownTestSuite() { delete dir; }
  static Json table() { return Json::parse(text_of(*dir / "runs/reproduce-smoke/table2.json")); }
  static std::string run() { return *dir / "runs/reproduce-smoke/cifar10-dense"; }

  static TemporaryDirectory* dir;
  static CommandResult result;
};
TemporaryDirectory* Reproduced::dir = nullptr;
CommandResult Reproduced::result;

TEST_F(Reproduced, EveryRowOfTheTableIsTrainedAndScored) {
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const Json rows = table().at("rows");
  const std::vector<std::string> keys = {"enwik8-dense",  "enwik8-fixed",  "enwik8-strided",
                                         "cifar10-dense", "cifar10-fixed", "cifar10-strided"};
  ASSERT_EQ(rows.size(), keys.size());
  for (std::size_t i = 0; i < keys.size(); ++i) {
    EXPECT_EQ(rows[i].at("recipe"), keys[i]);
    EXPECT_EQ(rows[i].at("evidence"), "toy size");
    EXPECT_EQ(rows[i].at("steps"), 2);
    EXPECT_GT(rows[i].at("bits_per_byte").get<double>(), 1);
    EXPECT_LT(rows[i].at("bits_per_byte").get<double>(), 9);
    EXPECT_GT(rows[i].at("times_dense").get<double>(), 0);
  }
  EXPECT_NEAR(rows[1].at("paper").at("times_dense").get<double>(), 1.31 / 0.55, 1e-9);
  EXPECT_NEAR(rows[5].at("paper").at("times_dense").get<double>(), 0.54 / 0.38, 1e-9);
  EXPECT_EQ(result.out.find("full run"), std::string::npos);
  EXPECT_NE(text_of(*dir / "runs/reproduce-smoke/table2.md").find("| enwik8 (12,288 context), fixed | 0.99 |"),
            std::string::npos);
}

TEST_F(Reproduced, RowsOfOneTrainingShareItsRun) {
  const Json rows = table().at("rows");
  EXPECT_EQ(rows[1].at("run"), "enwik8-fixed");
  EXPECT_EQ(rows[5].at("run"), "cifar10-strided");
  const auto before = fs::last_write_time(*dir / "runs/reproduce-smoke/enwik8-fixed/metrics.jsonl");
  const CommandResult third = reproduce(dir->path(), {"table3", "--scale", "smoke", "--set", "train.steps=2", "--set",
                                                      "train.warmup=1", "--windows", "1"});
  ASSERT_EQ(third.exit_code, 0) << third.err;
  EXPECT_EQ(fs::last_write_time(*dir / "runs/reproduce-smoke/enwik8-fixed/metrics.jsonl"), before);
  const Json scored = Json::parse(text_of(*dir / "runs/reproduce-smoke/table3.json")).at("rows");
  ASSERT_EQ(scored.size(), 6u);
  EXPECT_EQ(scored[0].at("min_context"), 512);
  EXPECT_EQ(scored[5].at("paper").at("bits_per_byte"), 0.9908);
}

TEST_F(Reproduced, ExistingResultsAreReadAndNotComputedAgain) {
  const std::string kept = *dir / "runs/reproduce-smoke/cifar10-dense/evaluations.jsonl";
  const auto before = fs::last_write_time(kept);
  const Json before_table = table();
  const CommandResult again = reproduce(dir->path(), {"table2", "--scale", "smoke", "--set", "train.steps=2", "--set",
                                                      "train.warmup=1", "--windows", "1", "--row", "cifar10-dense"});
  ASSERT_EQ(again.exit_code, 0) << again.err;
  EXPECT_EQ(fs::last_write_time(kept), before);
  EXPECT_EQ(again.err.find("steps of"), std::string::npos) << again.err;  // nothing was trained
  EXPECT_EQ(table(), before_table);
}

TEST_F(Reproduced, AttentionIsDrawnOverThePast) {
  const CommandResult drawn =
      run_command({"attention", run(), "--layer", "1", "--head", "0", "--query", "1000"}, dir->path());
  ASSERT_EQ(drawn.exit_code, 0) << drawn.err;
  const std::string bytes = text_of(run() + "/attention/layer-001-head-00-query-001000.png");
  const Picture p = read_png(reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size(), "picture");
  ASSERT_EQ(p.rows, 256);
  const auto at = [&](std::int64_t pixel_row, std::int64_t pixel_column,
                      int c) {  // the middle of a pixel of the 32 x 32
    return p.pixels[static_cast<std::size_t>(((8 * pixel_row + 4) * 256 + 8 * pixel_column + 4) * 3 + c)];
  };
  int brightest = 0;
  for (std::int64_t pixel = 0; pixel < 333; ++pixel)
    brightest = std::max<int>(brightest, at(pixel / 32, pixel % 32, 0));
  EXPECT_EQ(brightest, 255);
  for (std::int64_t pixel = 334; pixel < 1024; ++pixel)
    for (int c = 0; c < 3; ++c) ASSERT_EQ(at(pixel / 32, pixel % 32, c), 0) << pixel;
  EXPECT_EQ(p.pixels[((8 * 10 - 1) * 256 + 8 * 13 + 4) * 3], 255);  // the outline above byte 1000 = pixel 333
  const Json index = Json::parse(text_of(run() + "/attention/attention.json"));
  EXPECT_LE(index.at("pictures").at(0).at("entropy_bits").get<double>(), std::log2(1001.0) + 1e-6);
  EXPECT_TRUE(fs::exists(run() + "/attention/layer-001.png"));
  const CommandResult beyond = run_command({"attention", run(), "--layer", "4"}, dir->path());
  EXPECT_EQ(beyond.exit_code, 2);
  EXPECT_EQ(beyond.err, "longstride: --layer is 4, but the model has layers 0 to 3\n");
}

TEST_F(Reproduced, ThePageOfARunNeedsNothingOutsideIt) {
  ASSERT_EQ(run_command({"sample", run(), "--count", "1"}, dir->path()).exit_code, 0);
  write_text(run() + "/samples/sample-000.txt", "<b> & \xff \"quoted\"");
  const CommandResult made = run_command({"report", run()}, dir->path());
  ASSERT_EQ(made.exit_code, 0) << made.err;
  const std::string page = text_of(run() + "/report.html");
  for (const char* outside : {"http:", "https:", "src=\"/", "<script src", "@import", "url("})
    EXPECT_EQ(page.find(outside), std::string::npos) << outside;
  EXPECT_NE(page.find("data:image/png;base64,"), std::string::npos);
  EXPECT_NE(page.find("&lt;b&gt; &amp; \xEF\xBF\xBD &quot;quoted&quot;"), std::string::npos);
  EXPECT_NE(page.find("prefers-color-scheme: dark"), std::string::npos);
  EXPECT_NE(page.find("<polyline class=\"a\""), std::string::npos);
  EXPECT_NE(page.find("planned, one block"), std::string::npos);
  EXPECT_NE(page.find("processor"), std::string::npos);
  const RunHistory history = read_history(run());
  EXPECT_EQ(history.planned_bytes, history.used_bytes);
  EXPECT_GT(history.used_bytes, 1 << 20);
}

TEST(Reproduce, ATimeLimitStopsAtACheckpointAndTheSameCommandContinues) {
  const TemporaryDirectory dir;
  const std::vector<std::string> arguments = {
      "table4",       "--scale", "smoke", "--row", "audio-65k", "--windows", "1", "--set", "train.steps=100000",
      "--time-limit", "2"};
  const auto steps = [&] {
    const CommandResult result = reproduce(dir.path(), arguments);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    EXPECT_NE(result.out.find("the same command continues"), std::string::npos) << result.out;
    const Json row = Json::parse(text_of(dir / "runs/reproduce-smoke/table4.json")).at("rows").at(0);
    EXPECT_EQ(row.at("run"), "audio-strided");
    return row.at("steps").get<int>();
  };
  const int first = steps();
  EXPECT_GT(first, 0);
  EXPECT_GT(steps(), first);
}

TEST(Reproduce, ShortRunsTakeAboutAsLongAsAskedFor) {
  const TemporaryDirectory dir;
  std::vector<std::string> arguments = {"table1",          "--scale", "smoke",     "--row", "enwik8-fixed",
                                        "--train-seconds", "2",       "--windows", "1"};
  if (test::sanitized)
    for (const char* smaller : {"--set", "model.layers=1", "--set", "train.global_batch=1"})
      arguments.emplace_back(smaller);
  const CommandResult result = reproduce(dir.path(), arguments);
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const std::string run = dir / "runs/reproduce-smoke/enwik8-fixed";
  const RunHistory history = read_history(run);
  ASSERT_FALSE(history.steps.empty());
  const Json row = Json::parse(text_of(dir / "runs/reproduce-smoke/table1.json")).at("rows").at(0);
  const auto steps = row.at("steps").get<std::int64_t>();  // the number depends on the machine
  EXPECT_GE(steps, 1);
  EXPECT_NE(steps, 150);  // the toy recipe's own
  EXPECT_NE(text_of(run + "/recipe.yaml").find(fmt::format("steps: {}", steps)), std::string::npos);
  const double turn = std::numbers::pi * static_cast<double>(steps - 1) / static_cast<double>(steps);
  EXPECT_LE(history.steps.back().lr, 1.2 * 3e-3 * 0.5 * (1 + std::cos(turn)));  // the cosine ends with the run
  EXPECT_LT(history.seconds([](std::int64_t step) { return 8.0 * 1024 * static_cast<double>(step); }),
            60);  // on a busy machine times vary
}

TEST(Reproduce, WithoutDataTheTableSaysSo) {
  const TemporaryDirectory dir;
  const CommandResult result = reproduce(dir.path(), {"table1"});
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_EQ(result.err.substr(result.err.rfind("longstride:")),
            "longstride: no row of table1 could be run: data/cifar10.h5 does not exist; make it with `longstride "
            "prepare`, or give --data\n");
  EXPECT_NE(text_of(dir / "runs/reproduce-paper/table1.md").find("none: data/enwik8.h5 does not exist"),
            std::string::npos);
  // In a terminal, columns instead of Markdown, and why below.
  EXPECT_EQ(result.out.find('|'), std::string::npos) << result.out;
  const std::string blanks(18, ' '), narrow(8, ' '), wide(11, ' ');
  EXPECT_NE(result.out.find(blanks + "  bits/byte  " + narrow + "  s/iteration\n" +
                            "row                     paper  measured        paper  measured  evidence\n" +
                            "cifar10-strided          2.80  " + narrow + "  " + wide + "  " + narrow + "  none\n"),
            std::string::npos)
      << result.out;
  EXPECT_NE(result.out.find("enwik8-fixed: data/enwik8.h5 does not exist; make it with"), std::string::npos)
      << result.out;
  const CommandResult unknown = reproduce(dir.path(), {"table1", "--row", "enwik8"});
  EXPECT_EQ(unknown.exit_code, 2);
  EXPECT_EQ(unknown.err,
            "longstride: --row enwik8: no recipe of table1 has this name; choose from cifar10-strided, enwik8-fixed, "
            "imagenet64-strided, audio-strided\n");
}

TEST(Reproduce, OptionsThatItsScaleDoesNotReadAreRefused) {
  const TemporaryDirectory dir;
  const auto refusal = [&](std::vector<std::string> more) {
    more.insert(more.begin(), "table2");
    const CommandResult result = reproduce(dir.path(), more);
    EXPECT_EQ(result.exit_code, 2);
    return result.err;
  };
  EXPECT_EQ(refusal({"--scale", "smoke", "--steps", "3"}),
            "longstride: --steps has no effect with --scale smoke, which trains; leave it out, or use --set "
            "train.steps=N\n");
  for (const char* option : {"--data", "--time-limit", "--train-seconds", "--windows"})
    EXPECT_EQ(refusal({"--scale", "speed", option, "1"}),
              std::string("longstride: ") + option +
                  " has no effect with --scale speed, which times steps on random bytes; leave it out\n");
}

TEST(Reproduce, OverridesAreForTheRowsThatAreAskedFor) {
  const std::vector<std::string> smaller = {"data.context=1024"};  // CIFAR-10's pictures have 3,072 bytes
  EXPECT_THROW(paper_rows(2, recipes, Scale::speed, smaller, {}), UserError);
  const std::vector<PaperRow> rows = paper_rows(2, recipes, Scale::speed, smaller, {"enwik8-dense"});
  ASSERT_EQ(rows.size(), 1u);
  EXPECT_EQ(rows.front().recipe.data.context, 1024);
}

TEST(Reproduce, ASignalEndsTheTimingOfSteps) {
  const TemporaryDirectory dir;
  const std::string command = std::string("cd '") + dir.path() +
                              "' && OMP_NUM_THREADS=1 timeout --preserve-status -k 60 2 '" + LONGSTRIDE_COMMAND +
                              "' reproduce table2 --row enwik8-dense --scale speed --device cpu --steps 10000 "
                              "--recipes '" +
                              recipes +
                              "' --set model.layers=1 --set model.width=32 "
                              "--set model.heads=1 --set data.context=1024 --set train.global_batch=1 >out 2>err";
  const int status = std::system(command.c_str());
  EXPECT_EQ(WEXITSTATUS(status), 2) << text_of(dir / "err");
  EXPECT_NE(text_of(dir / "err").find("no row of table2 could be run: stopped by a signal before it was timed"),
            std::string::npos)
      << text_of(dir / "err");
}

TEST(Reproduce, FullRunsCostTheirTokensAndTheirAllReduce) {
  TableRow row;
  row.paper = paper_rows(1, recipes, Scale::speed, {}, {}).at(1);
  ASSERT_EQ(row.paper.key, "enwik8-fixed");
  row.measured.parameters = 100000000;
  row.measured.published_tokens = 7200000000;
  row.measured.seconds_per_step = 0.5;
  const double tokens_per_second = 8 * 12288 / 0.5;
  EXPECT_NEAR(full_run_hours(row, 1), 7.2e9 / tokens_per_second / 3600, 1e-9);
  const double steps = 7.2e9 / (8 * 12288), reduce = 2.0 * 7 / 8 * 2e8 / 350e9;
  EXPECT_NEAR(full_run_hours(row, 8), (7.2e9 / tokens_per_second / 8 + steps * reduce) / 3600, 1e-9);
  EXPECT_GT(full_run_hours(row, 64), full_run_hours(row, 1) / 64);
}

TEST(Reproduce, ATableKeepsTheEarlierResultsOfItsOtherRows) {
  const std::vector<PaperRow> all = paper_rows(2, recipes, Scale::speed, {}, {});
  PaperTable first{2, Scale::speed, {}};
  for (const std::size_t i : {0, 1, 3}) {
    Measured m;
    m.evidence = Evidence::speed, m.device = "a GPU", m.seconds_per_step = 0.5 + static_cast<double>(i);
    m.step_tokens = 100, m.parameters = 7, m.published_tokens = 1000, m.steps = 20;
    first.rows.push_back({all[i], m});
  }
  const TemporaryDirectory dir;
  const std::string path = dir / "table2.json";
  write_text(path, json(first).dump());
  PaperTable second{2, Scale::speed, {first.rows[1]}};
  second.rows[0].measured.seconds_per_step = 9;
  const PaperTable whole = with_earlier_results(second, earlier_results(path, second), all);
  first.rows[1].measured.seconds_per_step = 9;
  EXPECT_EQ(json(whole), json(first));
  EXPECT_EQ(markdown(whole), markdown(first));
  EXPECT_TRUE(earlier_results(path, {3, Scale::speed, {}}).empty());
  EXPECT_TRUE(earlier_results(path, {2, Scale::paper, {}}).empty());
  EXPECT_TRUE(earlier_results(dir / "absent", second).empty());
  for (const char* damaged : {"", "{", "[]", "{\"table\":2,\"scale\":\"speed\",\"rows\":[{\"row\":1}]}"}) {
    write_text(path, damaged);
    EXPECT_THROW(earlier_results(path, second), UserError) << damaged;
  }
}

TEST(Export, WritesTheWeightsAndBatchesThatTrainingBeginsWith) {
  const TemporaryDirectory dir;
  std::string text;
  for (int i = 0; i < 4000; ++i) text += static_cast<char>('a' + i * i % 23);
  write_text(dir / "text.bin", text);
  ASSERT_EQ(run_command({"prepare", "bytes", "--input", "text.bin", "--output", "x.h5"}, dir.path()).exit_code, 0);
  const std::vector<std::string> small = {
      "--set", "data.path=x.h5",           "--set", "data.context=64", "--set", "model.width=16",
      "--set", "model.layers=1",           "--set", "model.heads=1",   "--set", "model.attention.stride=8",
      "--set", "model.attention.summary=2"};
  std::vector<std::string> arguments = {"export", recipes + "/quickstart/text.yaml", "--steps", "3", "--output", "out"};
  arguments.insert(arguments.end(), small.begin(), small.end());
  const CommandResult result = run_command(arguments, dir.path());
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const SafetensorsReader batches(dir / "out/batches.safetensors"), weights(dir / "out/initial.safetensors");
  ASSERT_NE(batches.find("tokens"), nullptr);
  EXPECT_EQ(batches.find("tokens")->shape, (Shape{3, 4, 64}));
  std::vector<std::uint8_t> tokens(3 * 4 * 64);
  batches.read("tokens", Tensor(tokens.data(), Dtype::u8, {3, 4, 64}));
  for (std::size_t row = 0; row < 12; ++row)
    EXPECT_NE(text.find(std::string(tokens.begin() + static_cast<std::ptrdiff_t>(row * 64),
                                    tokens.begin() + static_cast<std::ptrdiff_t>(row * 64 + 64))),
              std::string::npos);
  EXPECT_NE(weights.find("layers.0.attention.query_key_value.weight"), nullptr);
  EXPECT_TRUE(fs::exists(dir / "out/recipe.yaml"));
}

class ExportedRun : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string text;
    for (int i = 0; i < 4000; ++i) text += static_cast<char>('a' + i * i % 23);
    write_text(dir / "text.bin", text);
    write_text(dir / "r.yaml",
               "name: toy\ndata: {kind: bytes, path: x.h5, context: 32}\nmodel:\n  kind: decoder\n  layers: 1\n"
               "  width: 16\n  heads: 1\n  attention: {integration: interleaved, parts: [dense], stride: 8}\n"
               "train: {steps: 4, global_batch: 2, lr: 1.0e-2, warmup: 1, checkpoint_every: 2}\n");
    expect_runs("prepare bytes --input text.bin --output x.h5");
    expect_runs("train r.yaml --run run --device cpu");
  }
  CommandResult run(const std::string& words) {
    std::istringstream in(words);
    return run_command({std::istream_iterator<std::string>(in), {}}, dir.path());
  }
  void expect_runs(const std::string& words) {
    const CommandResult result = run(words);
    ASSERT_EQ(result.exit_code, 0) << words << ": " << result.err;
  }
  void expect_refused(const std::string& words, const std::string& why) {
    const CommandResult result = run(words);
    EXPECT_EQ(result.exit_code, 2) << words;
    EXPECT_NE(result.err.find(why), std::string::npos) << result.err;
    EXPECT_FALSE(fs::exists(dir / "refused")) << words;
  }
  std::vector<float> weights(const std::string& file) {
    const SafetensorsReader reader(dir / file);
    std::vector<float> all;
    for (const TensorEntry& entry : reader.entries()) {
      std::vector<float> values(static_cast<std::size_t>(entry.shape.count()));
      reader.read(entry.name, Tensor(values.data(), Dtype::f32, entry.shape));
      all.insert(all.end(), values.begin(), values.end());
    }
    return all;
  }
  std::vector<std::uint8_t> batches(const std::string& file, std::int64_t steps) {
    const SafetensorsReader reader(dir / file);
    const Shape shape = {steps, 2, 32};
    std::vector<std::uint8_t> tokens(static_cast<std::size_t>(shape.count()));
    reader.read("tokens", Tensor(tokens.data(), Dtype::u8, shape));
    return tokens;
  }

  TemporaryDirectory dir;
};

TEST_F(ExportedRun, HasTheWeightsOfTheCheckpointAndTheBatchesAfterIt) {
  expect_runs("export r.yaml --steps 4 --output begin");
  expect_runs("export run --checkpoint 2 --steps 2 --output middle");
  expect_runs("export run --output end");
  const auto all = batches("begin/batches.safetensors", 4), rest = batches("middle/batches.safetensors", 2);
  EXPECT_TRUE(std::equal(rest.begin(), rest.end(), all.end() - static_cast<std::ptrdiff_t>(rest.size())));
  EXPECT_FALSE(fs::exists(dir / "end/batches.safetensors"));
  EXPECT_NE(weights("middle/weights.safetensors"), weights("end/weights.safetensors"));

  // A run that begins with them has them, in every tensor.
  expect_runs(
      "train r.yaml --run again --from end/weights.safetensors --device cpu --set train.lr=1e-30 --set train.steps=1 "
      "--set train.weight_decay=0");
  expect_runs("export again --output same");
  EXPECT_EQ(weights("same/weights.safetensors"), weights("end/weights.safetensors"));
}

TEST_F(ExportedRun, RefusesWhatDoesNotFit) {
  expect_refused("export run --set train.steps=9 --output refused", "is a run, whose recipe is as it was trained");
  expect_refused("export r.yaml --checkpoint last --output refused", "r.yaml is no run directory");
  expect_refused("export r.yaml --weights last --output refused", "r.yaml is no run directory");
  expect_refused("export run --checkpoint 3 --output refused", "3");
  expect_refused("export run --steps 1 --output refused", "after step 4 the run has no more; leave --steps out");
  expect_refused("export run --checkpoint 2 --steps 3 --output refused", "has 2 more; choose at most 2");
  expect_refused("export . --output refused", "holds no checkpoint");
  expect_refused("export run --output run --force", "recipe.yaml");
}

TEST_F(ExportedRun, OfChangedDataIsRefused) {
  write_text(dir / "other.bin", std::string(4000, 'q'));
  expect_runs("prepare bytes --input other.bin --output x.h5 --force");
  expect_refused("export run --checkpoint 2 --steps 2 --output refused",
                 "'train' has changed since the run was trained");
  expect_runs("export run --output weights");  // weights need no data
}

TEST_F(ExportedRun, OfADamagedCheckpointIsRefused) {
  const std::string model = dir / "run/checkpoints/step-00000002/model.safetensors";
  std::string bytes = text_of(model);
  bytes.back() = static_cast<char>(bytes.back() ^ 1);
  write_text(model, bytes);
  expect_refused("export run --checkpoint 2 --output refused",
                 "step-00000002/model.safetensors: its content does not match its checksum");
  expect_runs("export run --checkpoint 4 --output whole");
}

TEST_F(ExportedRun, DoesNotMixWithAnotherExport) {
  expect_runs("export run --checkpoint 2 --steps 2 --output out");
  const auto before = batches("out/batches.safetensors", 2);
  const CommandResult result = run("export run --output out --force");
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_NE(result.err.find("holds batches.safetensors of another export"), std::string::npos) << result.err;
  EXPECT_EQ(batches("out/batches.safetensors", 2), before);
  EXPECT_EQ(run("export r.yaml --output out --force").exit_code, 2);
  expect_runs("export run --checkpoint 2 --steps 1 --output out --force");
}

TEST_F(ExportedRun, StepsOfOtherSizesAreRefusedWhereverTheyAre) {
  write_text(dir / "staged.yaml",
             "name: toy\ndata: {kind: bytes, path: x.h5, context: 32}\nmodel:\n  kind: decoder\n  layers: 1\n"
             "  width: 16\n  heads: 1\n  attention: {integration: interleaved, parts: [dense], stride: 8}\n"
             "train:\n  steps: 6\n  global_batch: 2\n  lr: 1.0e-2\n  warmup: 1\n  stages:\n"
             "    - {until: 2, context: 32, global_batch: 2}\n    - {until: 4, context: 32, global_batch: 4}\n");
  expect_refused("export staged.yaml --steps 6 --output refused", "choose at most 2");
  expect_runs("export staged.yaml --steps 2 --output out");
}

TEST_F(ExportedRun, SaysInJsonWhichWeightsItHas) {
  const Json out = Json::parse(run("export run --checkpoint best --output out --json").out);
  EXPECT_EQ(out.at("run"), "run");
  EXPECT_EQ(out.at("weights"), "last");
  EXPECT_EQ(out.at("steps"), 0);
  const Json score = Json::parse(run("eval run --checkpoint best --device cpu --json").out);
  EXPECT_EQ(out.at("step"), score.at("step"));
}

TEST(KeptEvaluations, OfOtherBytesAreNotReused) {
  const TemporaryDirectory run;
  KeptEvaluation kept;
  kept.data = "x.h5";
  kept.sha256 = "first";
  kept.figure = 1.5;
  keep_evaluation(run.path(), kept);
  const std::vector<KeptEvaluation> found = kept_evaluations(run.path());
  ASSERT_EQ(found.size(), 1u);
  EXPECT_TRUE(found[0].same_question(kept));
  kept.sha256 = "second";
  EXPECT_FALSE(found[0].same_question(kept));
  kept.sha256 = "";  // no dataset to compare with
  EXPECT_TRUE(found[0].same_question(kept));
}

}  // namespace
}  // namespace longstride::testing
