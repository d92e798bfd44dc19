// RUN/environment.json says what was started, from which source, and how that was built.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <sstream>

#include "tests/support/text_run.h"

namespace longstride::testing {
namespace {

using nlohmann::json;

class Environment : public TextRun {
 protected:
  Environment() : TextRun(text_recipe(1, "steps: 3, global_batch: 4, lr: 1.0e-3, warmup: 1, log_every: 2"), {}) {}
  json read(const std::string& name) const { return json::parse(text(name)); }
  std::vector<json> steps() const {
    std::istringstream lines(text("run/metrics.jsonl"));
    std::vector<json> found;
    for (std::string line; std::getline(lines, line);)
      if (json step = json::parse(line); step.contains("lr")) found.push_back(step);
    return found;
  }
};

TEST_F(Environment, HoldsTheCommandAndTheBuild) {
  const std::string odd = "it's \xff", shown = "it'\\''s \xEF\xBF\xBD";  // JSON is UTF-8
  ASSERT_EQ(run({"train", "r.yaml", "--run", odd}).exit_code, 0);
  const json environment = read(odd + "/environment.json");
  EXPECT_EQ(environment.at("command"), LONGSTRIDE_COMMAND " train r.yaml --run '" + shown + "'");
  EXPECT_EQ(environment.at("directory"), std::filesystem::canonical(dir.path()).string());
  const std::string commit = environment.at("commit");
  const std::string hash = commit.substr(0, commit.find("-dirty"));
  if (commit != "unknown") {
    EXPECT_EQ(hash.size(), 40U) << commit;
    EXPECT_EQ(hash.find_first_not_of("0123456789abcdef"), std::string::npos) << commit;
    EXPECT_TRUE(commit == hash || commit == hash + "-dirty") << commit;
  }
  EXPECT_FALSE(environment.at("build type").get<std::string>().empty());
  EXPECT_TRUE(environment.at("tuned for the building machine").is_boolean());
  EXPECT_TRUE(environment.at("built with CUDA").is_boolean());
  const CommandResult report = run({"report", odd});
  EXPECT_EQ(report.exit_code, 0) << report.err;
  EXPECT_NE(text_of(dir / (odd + "/report.html")).find(commit), std::string::npos);
}

TEST_F(Environment, AResumedRunAddsItsCommandAndContinuesTheMetrics) {
  ASSERT_EQ(run({"train", "r.yaml", "--run", "run"}).exit_code, 0);
  const CommandResult resumed = run({"train", "r.yaml", "--run", "run", "--resume-changed", "--set", "train.steps=6"});
  ASSERT_EQ(resumed.exit_code, 0) << resumed.err;
  EXPECT_TRUE(read("run/environment.json").at("command").get<std::string>().ends_with(" train r.yaml --run run"));
  EXPECT_TRUE(read("run/environment-2.json").at("command").get<std::string>().ends_with("--set train.steps=6"));
  const std::vector<json> lines = steps();
  ASSERT_EQ(lines.size(), 4u);  // steps 2, 3, 4 and 6
  for (std::size_t i = 0; i < lines.size(); ++i) {
    EXPECT_EQ(lines[i].at("tokens").get<std::int64_t>(), lines[i].at("step").get<std::int64_t>() * 4 * 64);
    EXPECT_GT(lines[i].at("host_peak_bytes").get<std::int64_t>(), 1 << 20);
    EXPECT_FALSE(lines[i].contains("device_peak_bytes"));
    EXPECT_GE(lines[i].at("time"), lines[i == 0 ? 0 : i - 1].at("time"));
  }
  for (const std::size_t alone : {1u, 2u})  // one step since the line before, or since the process began
    EXPECT_DOUBLE_EQ(lines[alone].at("mean_loss").get<double>(), lines[alone].at("loss").get<double>());
  EXPECT_NE(lines[0].at("mean_loss"), lines[0].at("loss"));
}

}  // namespace
}  // namespace longstride::testing
