// --json and --quiet of every command: with --json standard output is one object with the keys that the guide lists,
// with --quiet there is nothing but results.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "tests/support/text_run.h"

namespace longstride::testing::json_test {
namespace {

using Json = nlohmann::json;

Arguments words_of(const std::string& text) {
  std::istringstream in(text);
  return {std::istream_iterator<std::string>(in), {}};
}

// Each command with arguments that it can run with in the folder of the run.
const std::map<std::string, std::string> runnable = {
    {"prepare bytes", "prepare bytes --input text.bin --output made.h5 --force"},
    {"info", "info x.h5"},
    {"recipe", "recipe x.h5 --like r.yaml --minutes 0.01 --output made.yaml --force --device cpu"},
    {"plan", "plan r.yaml --peak-tflops 1 --device cpu"},
    {"train", "train r.yaml --run run --resume-changed --set train.steps=4 --device cpu"},
    {"eval", "eval run --device cpu"},
    {"sample", "sample run --count 2 --length 8 --device cpu"},
    {"encode", "encode masked --input text.bin --output rows.npy --force --device cpu"},
    {"predict", "predict masked --input text.bin --device cpu"},
    {"show pattern", "show pattern r.yaml --positions 12"},
    {"show batch", "show batch r.yaml --step 1"},
    {"show spans", "show spans spanned"},
    {"bench step", "bench step r.yaml --steps 1 --device cpu"},
    {"bench attention", "bench attention r.yaml --repeats 1 --device cpu"},
    {"bench sample", "bench sample r.yaml --length 8 --device cpu"},
    {"reproduce",
     "reproduce table4 --scale smoke --row audio-65k --windows 1 --set train.steps=2 --set train.warmup=1 "
     "--output table --device cpu --recipes " LONGSTRIDE_SOURCE_DIR "/recipes"},
    {"export", "export r.yaml --steps 1 --output exported --force"},
    {"attention", "attention run"},
    {"report", "report run"},
    {"doctor", "doctor --megabytes 1"},
};
// The same for a model that remembers and learns spans, of which some say more.
const std::map<std::string, std::string> runnable_with_memory = {
    {"plan", "plan spans.yaml --peak-tflops 1 --device cpu"},
    {"eval", "eval spanned --device cpu"},
    {"sample", "sample spanned --length 40 --device cpu"},
    {"show pattern", "show pattern spanned"},
    {"bench step", "bench step spans.yaml --steps 1 --device cpu"},
    {"bench sample", "bench sample spans.yaml --length 8 --device cpu"},
    {"export", "export spanned --output weights --force"},
    {"attention", "attention spanned"},
    {"report", "report spanned"},
};
// They print what `prepare bytes` does, by the same function.
const std::set<std::string> like_bytes = {"prepare tokens", "prepare cifar10", "prepare images",
                                          "prepare audio",  "prepare listops", "prepare pathfinder"};

// A model whose heads learn how far they look back.
constexpr const char* spans_recipe = R"(name: spanned
data: {kind: bytes, path: x.h5, context: 16, order: streams}
model:
  kind: decoder
  layers: 2
  width: 16
  heads: 2
  positions: none
  distance: {table: learned, distances: 16, biases: none, self: false, span: {longest: 16, ramp: 4, initial: 0.5}}
  memory: {length: 16, start: zeros}
train: {steps: 2, global_batch: 2, lr: 1.0e-3, warmup: 1}
)";

constexpr const char* masked_recipe = R"(name: masked
data: {kind: bytes, path: x.h5, context: 16}
objective: {kind: masked}
model:
  kind: encoder
  layers: 1
  width: 16
  heads: 2
  attention: {parts: [dense]}
train: {steps: 2, global_batch: 2, lr: 1.0e-3, warmup: 1}
)";

class Console : public TextRun {
 protected:
  Console()
      : TextRun(text_recipe(),
                {{"train", "r.yaml", "--run", "run"},
                 {"train", "spans.yaml", "--run", "spanned"},
                 {"train", "masked.yaml", "--run", "masked"}},
                {{"spans.yaml", spans_recipe}, {"masked.yaml", masked_recipe}}) {}

  CommandResult run(const std::string& words) const { return run_command(words_of(words), dir.path(), 300); }
  // The names of the commands that `command --help` lists.
  Arguments subcommands_of(const std::string& command) const {
    std::istringstream lines(run(command + " --help").out);
    Arguments names;
    bool inside = false;
    for (std::string line; std::getline(lines, line);) {
      if (inside && line.starts_with("  ") && line[2] != ' ') names.push_back(words_of(line).front());
      inside = inside || line == "Subcommands:";
    }
    return names;
  }
  Arguments commands() const {
    Arguments all;
    for (const std::string& name : subcommands_of("")) {
      if (name == "help") continue;
      const Arguments inner = subcommands_of(name);
      if (inner.empty()) all.push_back(name);
      for (const std::string& kind : inner) all.push_back(name + " " + kind);
    }
    return all;
  }
};
TEST_F(Console, EveryCommandTakesJsonAndIsTriedHere) {
  const Arguments all = commands();
  EXPECT_GE(all.size(), 18U);
  for (const std::string& command : all) {
    EXPECT_NE(run(command + " --help").out.find("--json "), std::string::npos) << command;
    EXPECT_TRUE(runnable.contains(command) || like_bytes.contains(command)) << command;
  }
}

// First, second and third column of the guide's table: the command, keys that are always there, keys that may be.
std::map<std::string, std::pair<std::set<std::string>, std::set<std::string>>> documented() {
  std::map<std::string, std::pair<std::set<std::string>, std::set<std::string>>> rows;
  std::istringstream lines(text_of(LONGSTRIDE_SOURCE_DIR "/docs/guide/looking_at_results.md"));
  bool inside = false;
  const auto names_in = [&](const std::string& cell) {
    std::set<std::string> names;
    for (std::size_t at = 0; (at = cell.find('`', at)) != std::string::npos;) {
      const std::size_t end = cell.find('`', at + 1);
      names.insert(cell.substr(at + 1, end - at - 1));
      at = end + 1;
    }
    return names;
  };
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("## ")) inside = line == "## In scripts";
    if (!inside || !line.starts_with("| `")) continue;
    const std::size_t second = line.find('|', 1), third = line.find('|', second + 1);
    for (const std::string& command : names_in(line.substr(0, second)))
      rows[command] = {names_in(line.substr(second, third - second)), names_in(line.substr(third))};
  }
  return rows;
}

TEST_F(Console, WithJsonStandardOutputIsOneObjectWithTheKeysOfTheGuide) {
  const auto rows = documented();
  std::multimap<std::string, std::string> all(runnable.begin(), runnable.end());
  all.insert(runnable_with_memory.begin(), runnable_with_memory.end());
  for (const auto& [command, words] : all) {
    SCOPED_TRACE(words);
    ASSERT_TRUE(rows.contains(command));
    const CommandResult result = run(words + " --json");
    EXPECT_TRUE(result.exit_code == 0 || command == "doctor") << result.err;
    const Json object = Json::parse(result.out, nullptr, false);
    ASSERT_TRUE(object.is_object()) << result.out;
    const auto& [always, sometimes] = rows.at(command);
    for (const std::string& key : always) EXPECT_TRUE(object.contains(key)) << key << " is not in " << result.out;
    for (const auto& [key, value] : object.items())
      EXPECT_TRUE(always.contains(key) || sometimes.contains(key)) << key << " is not in the guide";
  }
  for (const auto& [command, keys] : rows) EXPECT_TRUE(runnable.contains(command)) << command;
}

TEST_F(Console, QuietLeavesResultsOnly) {
  for (const auto& [command, words] : runnable) {
    if (command == "doctor") continue;  // its findings depend on the machine
    SCOPED_TRACE(command);
    const CommandResult result = run(words + " --quiet");
    EXPECT_EQ(result.exit_code, 0) << result.err;
    EXPECT_EQ(result.err, "");
    const bool writes_files = command == "train" || command == "export" || command == "attention" ||
                              command == "report" || command == "encode" || command == "prepare bytes" ||
                              command == "recipe";
    EXPECT_EQ(result.out.empty(), writes_files) << result.out;
  }
}

TEST_F(Console, JsonHasWhatTheTextSays) {
  const Json info = Json::parse(run("info x.h5 --json").out);
  EXPECT_EQ(info.at("kind"), "bytes");
  EXPECT_EQ(info.at("sources").size(), 1U);
  std::int64_t bytes = 0;
  for (const Json& split : info.at("splits")) {
    bytes += split.at("bytes").get<std::int64_t>();
    std::int64_t counted = 0;
    for (const Json& count : split.at("histogram")) counted += count.get<std::int64_t>();
    EXPECT_EQ(counted, split.at("bytes"));
    EXPECT_EQ(split.at("verified"), true);
  }
  EXPECT_EQ(bytes, 4000);

  // fixed_block with stride 8, and the last two positions of the blocks before.
  const Json pattern = Json::parse(run("show pattern r.yaml --positions 12 --json").out);
  EXPECT_EQ(pattern.at("keys").size(), 12U);
  EXPECT_EQ(pattern.at("keys").at(3), Json::parse("[[0, 4]]"));
  EXPECT_EQ(pattern.at("keys").at(11), Json::parse("[[6, 12]]"));

  const Json sampled = Json::parse(run("sample run --count 2 --length 8 --json").out);
  EXPECT_EQ(sampled.at("count"), 2);
  EXPECT_EQ(text_of(dir / (sampled.at("output").get<std::string>() + "/sample-001.txt")).size(), 8U);
}

TEST_F(Console, ADoctorWithAProblemSaysSoInJsonAndByItsExitCode) {
  const CommandResult result = run("doctor --megabytes 1 --directory /nowhere --json");
  EXPECT_EQ(result.exit_code, 2);
  const Json object = Json::parse(result.out);
  EXPECT_EQ(object.at("fit"), false);
  int problems = 0;
  for (const Json& finding : object.at("findings")) problems += finding.at("verdict") == "problem" ? 1 : 0;
  EXPECT_EQ(object.at("problems"), problems);
  EXPECT_GE(problems, 1);
}

TEST_F(Console, AMistakeLeavesStandardOutputEmpty) {
  const CommandResult absent = run("info none.h5 --json --quiet");
  EXPECT_EQ(absent.exit_code, 2);
  EXPECT_EQ(absent.out, "");
  EXPECT_TRUE(absent.err.starts_with("longstride: none.h5: ")) << absent.err;
  const CommandResult both = run("info x.h5 --quiet --log-level info");
  EXPECT_EQ(both.exit_code, 2);
  EXPECT_EQ(both.out, "");
  EXPECT_NE(both.err.find("--log-level"), std::string::npos) << both.err;
}

}  // namespace
}  // namespace longstride::testing::json_test
