// The command as a user sees it: every mistake ends with exit code 2 and one useful sentence.
#include "tests/support/command.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "framework/core/device/device.h"
#include "launch/report/run_history.h"
#include "tests/support/text_run.h"

namespace longstride::testing::command_test {
namespace {

namespace fs = std::filesystem;

// A recipe, a dataset and a run of two steps; and files that are none of these.
class Command : public TextRun {
 protected:
  Command() : TextRun(text_recipe(2, "steps: 2, global_batch: 4, lr: 1.0e-3, warmup: 1")) {
    write_text(dir / "empty", "");
    fs::create_directories(dir / "nothing");
    write_text(dir / "pictures/a.png", "\x89PNG, or so it says");
    for (const char* name : {"a.npy", "a.npz", "a.tar", "a.wav"}) fs::copy(dir / "text.bin", dir / name);
  }

  // The parsing library words these itself, differently in each version; this checks the option, the value and the
  // hint.
  void expect_refused_by_parser(const Arguments& arguments, const std::string& option, const std::string& value,
                                const std::string& command) const {
    const CommandResult result = run(arguments);
    EXPECT_EQ(result.exit_code, 2);
    EXPECT_EQ(std::count(result.err.begin(), result.err.end(), '\n'), 1) << result.err;
    EXPECT_TRUE(result.err.starts_with("longstride: " + option + ": ")) << result.err;
    EXPECT_NE(result.err.find(value), std::string::npos) << result.err;
    EXPECT_TRUE(result.err.ends_with("; see longstride " + command + " --help\n")) << result.err;
  }

  // A copy of the run whose last checkpoint has `file` replaced by what `change` makes of it.
  template <class F>
  std::string damaged_run(const std::string& name, const std::string& file, F&& change) const {
    fs::remove_all(dir / name);
    copy_run("run", name);
    const std::string path = dir / in_checkpoint(name, 2, file);
    write_text(path, change(text_of(path)));
    return name;
  }
};
TEST_F(Command, WithoutArgumentsItListsItsCommands) {
  const CommandResult result = run({});
  EXPECT_EQ(result.exit_code, 0);
  for (const char* name : {"prepare", "info", "plan", "train", "eval", "sample", "show", "bench", "reproduce",
                           "attention", "report", "export"})
    EXPECT_NE(result.out.find(name), std::string::npos) << name;
  EXPECT_EQ(run({"--help"}).out, result.out);
}

TEST_F(Command, HelpAndVersionSucceed) {
  for (const char* name : {"prepare", "info", "plan", "train", "eval", "sample", "show", "bench", "reproduce",
                           "attention", "report", "export"}) {
    const CommandResult help = run({name, "--help"});
    EXPECT_EQ(help.exit_code, 0);
    EXPECT_EQ(help.err, "");
    EXPECT_NE(help.out.find("Usage: longstride " + std::string(name)), std::string::npos) << help.out;
  }
  EXPECT_EQ(run({"--version"}).out.substr(0, 11), "longstride ");
}

TEST_F(Command, ArgumentsThatDoNotParseAreRefused) {
  expect_refused({"plann", "r.yaml"}, "there is no command 'plann' (did you mean 'plan'?); see longstride --help");
  expect_refused({"xyzzy"}, "there is no command 'xyzzy'; see longstride --help");
  expect_refused({"--verson"}, "there is no option '--verson' (did you mean '--version'?); see longstride --help");
  expect_refused({"plan"}, "recipe is required; see longstride plan --help");
  expect_refused({"plan", "r.yaml", "more"}, "'more' is one argument too many; see longstride plan --help");
  expect_refused({"plan", "r.yaml", "--rank=3"},
                 "there is no option '--rank' (did you mean '--ranks'?); see longstride plan --help");
  expect_refused_by_parser({"plan", "r.yaml", "--ranks", "0"}, "--ranks", "Value 0 not in range", "plan");
  expect_refused({"plan", "r.yaml", "--peak-tflops", "0"},
                 "--peak-tflops: 0 is not a number above 0; see longstride plan --help");
  expect_refused({"show", "patern", "r.yaml"},
                 "there is no command 'patern' (did you mean 'pattern'?); see longstride show --help");
  expect_refused({"show"}, "show needs a command: pattern or batch or spans; see longstride show --help");
  expect_refused({"show", "pattern", "r.yaml", "--layer", "-1"},
                 "--layer: -1 is not a number at or above 0; see longstride show pattern --help");
  expect_refused_by_parser({"eval", "run", "--split", "all"}, "--split", "all not in", "eval");
  expect_refused({"eval", "run", "--batch", "0"}, "--batch: 0 is not a number above 0; see longstride eval --help");
  expect_refused({"prepare", "bytes", "--input", "text.bin"},
                 "--output is required; see longstride prepare bytes --help");
  expect_refused({"prepare", "bytes", "--input", "text.bin", "--ouput", "x.h5"},
                 "there is no option '--ouput' (did you mean '--output'?); see longstride prepare bytes --help");
  expect_refused({"--json", "info", "x.h5"}, "'--json' belongs behind 'info'; see longstride info --help");
}

TEST_F(Command, RecipesThatCannotBeReadAreRefused) {
  expect_refused({"plan", "none.yaml"},
                 "none.yaml: cannot be read; give the file of a recipe, such as recipes/quickstart/text.yaml");
  expect_refused({"plan", "nothing"}, "nothing is a directory; give the file of a recipe");
  expect_refused({"plan", "empty"}, "empty:1: a recipe is a map of name, data, model and train, but this is empty");
  expect_refused({"plan", "r.yaml", "--set", "model.layers"},
                 "--set model.layers: must be KEY=VALUE, as in --set model.layers=12");
  expect_refused({"train", "r.yaml", "--set", "model.heads=3"},
                 "--set model.heads=3: model.heads is 3, but must divide model.width, 16");
  expect_refused({"plan", "r.yaml", "--set", "base=other.yaml"},
                 "--set base=other.yaml: base can only be set in the file, because what it names is read first");
  expect_refused(
      {"plan", "r.yaml", "--set", "model.attention.stride=[8"},
      "--set model.attention.stride=[8: model.attention.stride is [8, but must be 0 or a positive whole number");
  expect_refused({"plan", "r.yaml", "--ranks", "3"},
                 "train.global_batch is 4, which 3 ranks do not divide; choose a multiple of 3 or other ranks");
  const std::string stage = "train.stages=[{until: 1, global_batch: 12, micro_batch: 4}]";
  expect_refused({"plan", "r.yaml", "--ranks", "2", "--set", stage},
                 "train.stages.micro_batch is 4, which does not divide the 6 sequences of each of 2 ranks; choose a "
                 "divisor of 6");
}

TEST_F(Command, WhatCannotBeTrainedIsRefused) {
  expect_refused({"train", "r.yaml", "--run", "run"},
                 "run: already holds checkpoints; continue it with --resume or choose another directory with --run");
  expect_refused({"train", "r.yaml", "--run", "/"},
                 "/: is the root folder, which cannot be a run; choose another directory with --run");
  expect_refused({"train", "r.yaml", "--run", "nothing", "--resume"},
                 "nothing: holds no checkpoint to resume from; start the run without --resume");
  expect_refused({"train", "r.yaml", "--set", "data.kind=audio", "--run", "a"},
                 "x.h5: holds bytes, but the recipe's data.kind is audio; change data.kind or data.path");
  expect_refused({"train", "r.yaml", "--set", "data.context=3601", "--run", "a"},
                 "x.h5: 'train': holds 3,600 bytes, fewer than one context of 3,601; prepare it with a larger split or "
                 "shorten data.context");
  expect_refused({"train", "r.yaml", "--set", "train.precision=bf16", "--run", "a"},
                 "train.precision is bf16, which needs a GPU, and this runs on the CPU; use --set "
                 "train.precision=automatic");
  expect_refused({"train", "r.yaml", "--set", "train.precision=fp8", "--run", "a"},
                 "train.precision is fp8, which needs a GPU, and this runs on the CPU; use --set "
                 "train.precision=automatic");
  for (const char* command : {"train", "eval"})
    expect_refused({command, std::string(command) == "train" ? "r.yaml" : "run", "--device", "gpu"},
                   built_with_cuda()
                       ? "--device gpu: no GPU is found here (nvidia-smi shows what the driver sees); use --device cpu"
                       : "--device gpu: this build has no CUDA; configure it again where nvcc is found, or use "
                         "--device cpu");
  expect_refused_by_parser({"train", "r.yaml", "--device", "tpu"}, "--device", "tpu not in", "train");
  expect_refused({"train", "r.yaml", "--run", "text.bin"},
                 "text.bin: cannot be created (Not a directory); choose another directory with --run");
  EXPECT_FALSE(fs::exists(dir / "a"));
}

TEST_F(Command, ARunIsResumedOnlyWithARecipeThatContinuesItAndIsOtherwiseLeftAlone) {
  const std::string before = text_of(dir / "run/recipe.yaml");
  ASSERT_NE(before, "");
  const auto refused = [&](const std::string& setting, const std::string& sentence) {
    expect_refused({"train", "r.yaml", "--run", "run", "--resume", "--set", setting}, sentence);
    EXPECT_EQ(text_of(dir / "run/recipe.yaml"), before);
  };
  const std::string other = ", but the run in run began with ";
  const std::string advice = "; resume it with its own recipe, or start another run";
  refused("model.layers=3", "model.layers is 3" + other + "2" + advice);
  refused("model.attention.stride=4", "model.attention.stride is 4" + other + "8" + advice);
  refused("model.attention.parts=[local, column]",
          "model.attention.parts is local, column" + other + "fixed_block, fixed_summary" + advice);
  refused("model.positions=none", "model.positions is none" + other + "attention" + advice);
  refused("model.rotary_base=500", "model.rotary_base is 500" + other + "0" + advice);
  refused("model.query_key_norm=true", "model.query_key_norm is true" + other + "false" + advice);
  refused("train.seed=2", "train.seed is 2" + other + "1" + advice);
  refused("optimizer.kind=muon", "optimizer.kind is muon" + other + "adam" + advice);
  refused("data.context=32", "data.context is 32" + other + "64" + advice);
  refused("train.ema=0.5", "train.ema is 0.5, but the run in run keeps no average of its weights; set train.ema: 0");
  refused("train.steps=1", "train.steps is 1, but the run in run has done 2 already; raise train.steps to continue it");
}

// The settings of a run are those of its last checkpoint until the user says otherwise.
TEST_F(Command, ARunIsContinuedWithOtherSettingsOnlyWhenToldTo) {
  copy_run("run", "more");
  const std::vector<std::string> start = {"train", "r.yaml", "--run", "more"};
  const std::vector<std::string> settings = {
      "--set", "train.steps=4",         "--set", "train.stages=[{until: 3, context: 16}]",
      "--set", "model.recompute=block", "--set", "train.micro_batch=2"};
  const auto with = [&](const char* flag) {
    std::vector<std::string> all = start;
    all.push_back(flag);
    all.insert(all.end(), settings.begin(), settings.end());
    return all;
  };
  const std::string first = text_of(dir / "more/recipe.yaml");
  expect_refused(with("--resume"),
                 "the run in more would not continue as it began: train.stages was not set and is [{until: 3, context: "
                 "16, lr: 0, global_batch: 0, micro_batch: 0, window: []}]; train.steps was 2 and is 4; resume it with "
                 "its own recipe and data, or accept the change with "
                 "--resume-changed");
  EXPECT_FALSE(fs::exists(dir / "more/environment-2.json"));
  const CommandResult result = run(with("--resume-changed"));
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_NE(result.err.find("train.steps: 2 before, 4 now"), std::string::npos) << result.err;
  EXPECT_TRUE(fs::exists(dir / "more/checkpoints/step-00000004"));
  EXPECT_EQ(text_of(dir / "more/recipe.yaml"), first);
  EXPECT_NE(text_of(dir / "more/recipe-2.yaml")
                .find("stages: [{until: 3, context: 16, lr: 0, global_batch: 0, micro_batch: 0, window: []}]"),
            std::string::npos);
  EXPECT_NE(text_of(dir / "more/recipe-2.yaml").find("steps: 4"), std::string::npos);
  EXPECT_TRUE(fs::exists(dir / "more/environment-2.json"));
  // The run's location and its logging do not count as changes.
  EXPECT_EQ(run({"train", "more/recipe-2.yaml", "--run", "more", "--resume", "--set", "train.log_every=1"}).exit_code,
            0);
}

TEST_F(Command, ARunThatIsDoneIsLeftAsItIs) {
  copy_run("run", "done");
  const std::int64_t used = read_history(dir / "done").used_bytes;
  EXPECT_GT(used, 0);
  const CommandResult result = run({"train", "r.yaml", "--run", "done", "--resume"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(read_history(dir / "done").used_bytes, used);
  const auto said = nlohmann::json::parse(run({"train", "r.yaml", "--run", "done", "--resume", "--json"}).out);
  EXPECT_TRUE(said.at("loss").is_null() && said.at("bits_per_byte").is_null()) << said;
}

TEST_F(Command, BenchTimesAStepOfARecipeWithoutItsData) {
  const CommandResult result = run({"bench", "step", "r.yaml", "--set", "data.path=none.h5", "--steps", "3", "--json"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  const auto json = nlohmann::json::parse(result.out);
  EXPECT_EQ(json.at("steps"), 3);
  EXPECT_EQ(json.at("precision"), "fp32");
  EXPECT_EQ(json.at("mfu"), "unknown");
  EXPECT_EQ(json.at("planned_bytes"), json.at("used_bytes"));
  const double milliseconds = json.at("milliseconds");
  EXPECT_LE(json.at("fastest").get<double>(), milliseconds);
  EXPECT_GE(json.at("slowest").get<double>(), milliseconds);
  EXPECT_NEAR(json.at("tokens_per_second").get<double>(), 4 * 64 / (milliseconds * 1e-3), 1);
  EXPECT_NE(run({"bench", "step", "r.yaml", "--steps", "1"}).out.find("tokens/s"), std::string::npos);
  expect_refused({"bench"}, "bench needs a command: step or attention or sample; see longstride bench --help");
}

TEST_F(Command, BenchTimesGenerationWithoutDataOrARun) {
  const CommandResult result =
      run({"bench", "sample", "r.yaml", "--set", "data.path=none.h5", "--count", "3", "--length", "20", "--json"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  const auto json = nlohmann::json::parse(result.out);
  EXPECT_EQ(json.at("sequences"), 3);
  EXPECT_EQ(json.at("positions"), 20);
  EXPECT_NEAR(json.at("bytes_per_second").get<double>(), 60 / json.at("seconds").get<double>(), 1);
  EXPECT_GT(json.at("cache_bytes").get<int>(), 0);
  EXPECT_NE(run({"bench", "sample", "r.yaml", "--length", "4"}).out.find("bytes/s"), std::string::npos);
  EXPECT_EQ(run({"bench", "sample", "r.yaml", "--length", "65"}).exit_code, 0);
}

TEST_F(Command, SamplesAreDrawnAsAskedFor) {
  const auto sampled = [&](std::vector<std::string> options, const std::string& file = "sample-001.txt") {
    options.insert(options.begin(), {"sample", "run", "--output", "drawn", "--force", "--count", "2"});
    const CommandResult result = run(options);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return text_of(dir / ("drawn/" + file));
  };
  const std::string free = sampled({});
  EXPECT_EQ(free.size(), 64u);
  EXPECT_EQ(sampled({"--batch", "1"}), free);
  EXPECT_NE(sampled({"--seed", "2"}), free);
  EXPECT_EQ(sampled({"--top-k", "1"}), sampled({"--temperature", "0"}));
  EXPECT_EQ(sampled({"--top-p", "0"}), sampled({"--temperature", "0"}));
  EXPECT_NE(sampled({"--top-k", "1"}), free);
  // The given beginnings are those of the test split's first two sequences.
  const std::string text = text_of(dir / "text.bin");
  const auto begins = [&](const std::string& sample, std::size_t given) {
    return text.find(sample.substr(0, given)) != std::string::npos;
  };
  EXPECT_TRUE(begins(sampled({"--complete", "test"}), 32));
  EXPECT_FALSE(begins(sampled({"--complete", "test"}), 64));
  EXPECT_TRUE(begins(sampled({"--complete", "test", "--given", "63"}), 63));
  EXPECT_NE(sampled({"--complete", "test"}), sampled({"--complete", "test"}, "sample-000.txt"));
}

TEST_F(Command, EvaluationOfASpreadOfWindowsSaysHowSureItIs) {
  const auto evaluated = [&](std::vector<std::string> options) {
    options.insert(options.begin(), {"eval", "run", "--split", "train", "--json"});
    const CommandResult result = run(options);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return nlohmann::json::parse(result.out);
  };
  const auto all = evaluated({}), some = evaluated({"--windows", "12", "--spread"});
  EXPECT_EQ(some.at("bytes"), 12 * 64);
  const double error = some.at("standard_error");
  EXPECT_GT(error, 0);
  EXPECT_NEAR(some.at("bits_per_byte").get<double>(), all.at("bits_per_byte").get<double>(), 5 * error);
  EXPECT_NE(run({"eval", "run", "--windows", "3", "--spread"}).out.find(" +- "), std::string::npos);
  // One window says nothing about the spread of several.
  EXPECT_TRUE(evaluated({"--windows", "1"}).at("standard_error").is_null());
  EXPECT_EQ(run({"eval", "run", "--windows", "1", "--spread"}).out.find(" +- "), std::string::npos);
}

TEST_F(Command, WhatCannotBeEvaluatedIsRefused) {
  expect_refused({"eval", "nothing"}, "nothing: holds no checkpoint; give the directory of a run that has saved one");
  expect_refused({"eval", "run", "--min-context", "64"}, "--min-context is 64, but must be below the context of 64");
  expect_refused({"eval", "run", "--weights", "average"},
                 "run: the run keeps no average of its weights (train.ema is 0); use --weights last");
  expect_refused({"eval", "run", "--data", "text.bin"},
                 "text.bin: is not an HDF5 file; make one with `longstride prepare`");
  expect_refused_with({"sample", "run", "--length", "0"}, "--length: Value 0 not in range");
  expect_refused(
      {"sample", "run", "--prompt", "none"},
      "none: cannot be read; --prompt names a file whose bytes every sample begins with, or is - for standard input");
  expect_refused({"sample", "run", "--prompt", "text.bin"},
                 "text.bin: the prompt must be shorter than the 64 bytes of a sample; shorten it, or raise --length");
  expect_refused({"sample", "run", "--complete", "test", "--given", "64"},
                 "--given is 64, but must be below the 64 bytes of a sample");
  expect_refused({"sample", "run", "--complete", "test", "--count", "1000"},
                 "--count is 1000, but the split 'test' of x.h5 has 3 sequences of 64 bytes to continue; choose "
                 "at most that");
  expect_refused({"sample", "run", "--output", "text.bin"},
                 "text.bin: cannot be created (Not a directory); choose another folder with --output");
}

TEST_F(Command, WhatCannotBeShownIsRefused) {
  expect_refused({"show", "pattern", "r.yaml", "--layer", "2"}, "--layer is 2, but the recipe has layers 0 to 1");
  expect_refused({"show", "pattern", "r.yaml", "--head", "2"}, "--head is 2, but the recipe has heads 0 to 1");
  expect_refused({"show", "pattern", "r.yaml", "--positions", "97"},
                 "--positions is 97, but at most 96 can be shown as text; give --output x.png");
  expect_refused({"show", "pattern", "r.yaml", "--query", "64", "--output", "a.png"},
                 "--query is 64, but the picture shows positions 0 to 63");
  expect_refused({"show", "pattern", "r.yaml", "--scale", "65", "--output", "a.png"},
                 "--scale 65 makes a picture of 4160 pixels per side, more than 4096; lower it or --positions");
}

TEST_F(Command, WhatCannotBePreparedIsRefusedAndLeavesNothing) {
  const auto prepare = [&](const char* kind, const char* input, const std::string& sentence) {
    expect_refused({"prepare", kind, "--input", input, "--output", "y.h5"}, sentence);
  };
  prepare("bytes", "empty", "empty: is empty; there is nothing to prepare");
  prepare("bytes", "nothing", "nothing: holds no files; give a folder with files to read");
  prepare(
      "cifar10", "text.bin",
      "text.bin: has 4,000 bytes, but must have a multiple of 3,073, the size of a record; it is cut short or not a "
      "batch of CIFAR-10's binary version");
  prepare("cifar10", "nothing",
          "nothing: holds no data_batch_*.bin or test_batch.bin; CIFAR-10's binary version is needed");
  prepare("images", "pictures", "pictures/a.png: is not a PNG file, judging by its first bytes");
  prepare("images", "nothing", "nothing: holds no PNG, JPEG, WebP, .npy or .npz files; give a folder of pictures");
  prepare("images", "a.npy", "a.npy: is not a .npy file, judging by its first bytes; save the array with numpy.save");
  prepare("images", "a.npz",
          "a.npz: is not a tar or zip archive, or is damaged (Unrecognized archive format); copy or download it again");
  expect_refused({"prepare", "bytes", "--input", "text.bin", "--output", "x.h5"},
                 "x.h5: already exists; choose another --output, or replace it with --force");
  for (const char* more : {"--force", "--quiet"})
    expect_refused(
        {"prepare", "bytes", "--input", "text.bin", "--output", "/dev/null", more},
        "/dev/null: is a pipe, a socket or a device, but this needs a regular file; choose another --output");
  expect_refused({"prepare", "bytes", "--input", "text.bin", "--output", "y.h5", "--split", "1,2"},
                 "text.bin: has 4,000 bytes, but --split 1,2 adds up to 3; make the counts add up or use fractions");
  expect_refused({"info", "text.bin"}, "text.bin: is not an HDF5 file; make one with `longstride prepare`");
  for (const auto& entry : fs::directory_iterator(dir.path()))
    EXPECT_TRUE(entry.path().filename() != "y.h5" && entry.path().filename().string().front() != '.') << entry.path();
}

TEST_F(Command, ACheckpointCutShortAnywhereIsReportedInOneSentence) {
  for (const char* file : {"model.safetensors", "state.json"})
    for (std::size_t part = 0; part < 8; ++part) {
      const std::string name =
          damaged_run("cut", file, [&](const std::string& whole) { return whole.substr(0, whole.size() * part / 8); });
      const CommandResult result = run({"eval", name, "--log-level", "error"});
      EXPECT_EQ(result.exit_code, 2) << file << " " << part;
      EXPECT_EQ(result.err,
                "longstride: cut: none of its checkpoints, of 2, is complete; train it again in another directory\n");
    }
}

TEST_F(Command, OneWrongBitOfACheckpointIsFound) {
  for (const char* file : {"model.safetensors", "state.json"}) {
    const std::string name = damaged_run("wrong", file, [](std::string whole) {
      whole[whole.size() / 2] = static_cast<char>(whole[whole.size() / 2] ^ 1);
      return whole;
    });
    const CommandResult result = run({"sample", name});
    EXPECT_EQ(result.exit_code, 2) << file;
    EXPECT_NE(result.err.find("the checkpoint of step 2 is skipped: wrong/checkpoints/step-00000002/"),
              std::string::npos)
        << result.err;
  }
}

TEST_F(Command, ADatasetCutShortAnywhereIsReportedInOneSentence) {
  const std::string whole = text_of(dir / "x.h5");
  for (std::size_t part = 0; part < 8; ++part) {
    write_text(dir / "cut.h5", whole.substr(0, whole.size() * part / 8));
    for (const std::vector<std::string>& arguments :
         {std::vector<std::string>{"info", "cut.h5"}, {"eval", "run", "--data", "cut.h5"}}) {
      const CommandResult result = run(arguments);
      EXPECT_EQ(result.exit_code, 2) << part;
      EXPECT_EQ(result.err.substr(0, 20), "longstride: cut.h5: ") << result.err;
      EXPECT_EQ(std::count(result.err.begin(), result.err.end(), '\n'), 1) << result.err;
    }
  }
}

TEST_F(Command, WarningsCanBeSilenced) {
  const std::string name = damaged_run("gone", "model.safetensors", [](const std::string&) { return ""; });
  const std::string loud = run({"eval", name}).err, quiet = run({"--log-level", "error", "eval", name}).err;
  EXPECT_EQ(std::count(loud.begin(), loud.end(), '\n'), 2);
  EXPECT_EQ(std::count(quiet.begin(), quiet.end(), '\n'), 1);
}

}  // namespace
}  // namespace longstride::testing::command_test
