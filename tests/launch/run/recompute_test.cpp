// model.recompute from the command line: what may be written, what the planner chooses, and what a run keeps of it.
#include <gtest/gtest.h>

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "tests/support/text_run.h"

namespace longstride::testing {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

const std::string automatic = "model.recompute=automatic";

class RecomputeCommand : public TextRun {
 protected:
  RecomputeCommand() : TextRun(text_recipe(6, "steps: 3, global_batch: 4, lr: 1.0e-2, warmup: 1, log_every: 1"), {}) {}

  Json plan(const std::string& setting, const Arguments& more = {}) const {
    Arguments arguments = {"plan", "r.yaml", "--json", "--peak-tflops", "1", "--set", setting};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return Json::parse(run_well(arguments).out);
  }
  std::string weights(const std::string& of) const {
    const std::string bytes = checkpoint_file(of, 3, "model.safetensors");
    EXPECT_FALSE(bytes.empty()) << of;
    return bytes;
  }
};
TEST_F(RecomputeCommand, AnUnknownPolicyIsRefusedWithThoseThatThereAre) {
  expect_refused({"plan", "r.yaml", "--set", "model.recompute=selctive"},
                 "--set model.recompute=selctive: model.recompute is selctive, but must be none or selective or block "
                 "or attention_and_feed_forward or automatic; did you mean 'selective'?");
}

TEST_F(RecomputeCommand, ThePlannerTakesTheFastestThatFits) {
  for (const char* device : {"cpu", "gpu"}) {
    const char* purpose = std::string(device) == "cpu" ? "total" : "block";
    const auto gib_of = [&](const char* policy) {
      const Json json = plan(std::string("model.recompute=") + policy, {"--device", device});
      EXPECT_EQ(json.at("recompute"), policy);
      return json.at("bytes_per_rank").at(purpose).get<double>() / (1 << 30);
    };
    const auto chosen = [&](double gib) {
      return plan(automatic, {"--device", device, "--memory", fmt::format("{:.12f}", gib)});
    };
    const double none = gib_of("none"), selective = gib_of("selective"), block = gib_of("block");
    for (const auto& [limit, policy, bytes] : {std::tuple{1.001 * none, "none", none},
                                               {0.999 * none, "selective", selective},
                                               {0.999 * selective, "block", block},
                                               {0.5 * block, "block", block}}) {
      const Json json = chosen(limit);
      EXPECT_EQ(json.at("recompute"), policy) << device << " " << limit;
      EXPECT_EQ(json.at("bytes_per_rank").at(purpose).get<double>() / (1 << 30), bytes) << device << " " << limit;
    }
  }
}

TEST_F(RecomputeCommand, ThePlanSaysWhatIsKeptAndWhyItWasChosen) {
  const auto line = [&](const std::vector<std::string>& more) {
    std::vector<std::string> arguments = {"plan", "r.yaml", "--peak-tflops", "1"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const std::string text = run_well(arguments).out;
    const std::size_t at = text.find("\nrecompute ");
    EXPECT_NE(at, std::string::npos) << text;
    return text.substr(at + 1, text.find('\n', at + 1) - at - 1);
  };
  EXPECT_EQ(line({}), "recompute             none: everything is kept");
  EXPECT_EQ(line({"--set", "model.recompute=selective"}),
            "recompute             selective: keeps the residual stream between layers and attention's output and "
            "log-sum-exp");
  EXPECT_EQ(line({"--set", automatic, "--memory", "2"}),
            "recompute             none: everything is kept; chosen for 2.00 GiB (--memory): none takes 0.00");
  const std::string here = line({"--set", automatic});  // or what is left in a group, where it leaves less
  EXPECT_NE(here.find("(nine tenths of what is "), std::string::npos) << here;
  EXPECT_TRUE(here.ends_with("): none takes 0.00")) << here;
  EXPECT_NE(
      line({"--set", automatic, "--device", "gpu"})
          .find("chosen for 138.00 GiB (an H200's, because there is no GPU here and --memory is not given): none"),
      std::string::npos);
}

TEST_F(RecomputeCommand, AMemoryThatDecidesNothingIsRefused) {
  expect_refused({"plan", "r.yaml", "--memory", "8"},
                 "--memory is 8 GiB, but the recipe leaves no choice that depends on it; set model.recompute: "
                 "automatic, or leave the option out");
  EXPECT_EQ(run({"plan", "r.yaml", "--set", automatic, "--memory", "0"}).exit_code, 2);
}

TEST_F(RecomputeCommand, EveryPolicyTrainsTheSameWeights) {
  run_well({"train", "r.yaml", "--run", "stored", "--set", "model.dropout=0.1"});
  for (const char* policy : {"selective", "block", "automatic"}) {
    run_well({"train", "r.yaml", "--run", policy, "--set", "model.dropout=0.1", "--set",
              std::string("model.recompute=") + policy});
    EXPECT_EQ(weights(policy), weights("stored")) << policy;
  }
}

TEST_F(RecomputeCommand, ARunPrintsAndKeepsTheChoiceAndMayResumeWithAnother) {
  const CommandResult first = run_well({"train", "r.yaml", "--run", "kept", "--set", automatic});
  EXPECT_NE(first.err.find("recompute   none: everything is kept; chosen for "), std::string::npos) << first.err;
  EXPECT_NE(text("kept/recipe.yaml").find("recompute: none\n"), std::string::npos);
  const std::vector<std::string> longer = {"--run", "kept", "--resume-changed", "--set", "train.steps=5"};
  std::vector<std::string> again = {"train", "r.yaml", "--set", "model.recompute=selective"};
  again.insert(again.end(), longer.begin(), longer.end());
  run_well(again);
  EXPECT_NE(text("kept/recipe-2.yaml").find("recompute: selective\n"), std::string::npos);
  run_well({"train", "r.yaml", "--run", "kept", "--resume", "--set", automatic, "--set", "train.steps=5"});
  run_well({"report", "kept"});
  run_well({"eval", "kept", "--split", "valid"});
}

TEST_F(RecomputeCommand, AllRanksTakeTheSameChoiceAndEveryPolicyGivesTheirBits) {
  for (const char* ranks_of_a_sequence : {"1", "2"}) {
    const std::string name = std::string("two-") + ranks_of_a_sequence;
    const auto train = [&](const std::string& policy) {
      return run_well({"train", "r.yaml", "--run", name + policy, "--set", "model.recompute=" + policy, "--set",
                       std::string("parallel.sequence_ranks=") + ranks_of_a_sequence, "--set", "train.micro_batch=1"},
                      2);
    };
    const CommandResult result = train("automatic");
    EXPECT_NE(result.err.find(", for each of 2 ranks, the least of all ranks)"), std::string::npos) << result.err;
    EXPECT_NE(text((name + "automatic/recipe.yaml")).find("recompute: none\n"), std::string::npos);
    train("selective");
    EXPECT_EQ(weights(name + "selective"), weights(name + "automatic"));
  }
}

TEST_F(RecomputeCommand, AStepTakesThePlannedMemory) {
  for (const auto& [setting, policy] : {std::pair{"selective", "selective"}, std::pair{"automatic", "none"}}) {
    const Json bench = Json::parse(run_well({"bench", "step", "r.yaml", "--steps", "2", "--json", "--set",
                                             std::string("model.recompute=") + setting})
                                       .out);
    EXPECT_EQ(bench.at("planned_bytes"), bench.at("used_bytes"));
    EXPECT_EQ(bench.at("recompute"), policy);
  }
}

}  // namespace
}  // namespace longstride::testing
