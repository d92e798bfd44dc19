// Impossible values of options, given to the command itself: exit code 2 and one sentence with the option, the value
// and what to do. Comments say what such a value used to do silently, where that is not obvious.
#include <gtest/gtest.h>

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>

#include "datasets/formats/wav.h"
#include "framework/core/device/device.h"
#include "tests/launch/recipe/recipe_texts.h"
#include "tests/support/sanitized.h"
#include "tests/support/text_run.h"

namespace longstride::testing {
namespace {

namespace fs = std::filesystem;

class Values : public TextRun {
 protected:
  Values() : TextRun(edited(edited(small_recipe, "steps: 20", "steps: 2"), "layers: 2", "layers: 1")) {
    write_text(dir / "empty", "");
    fs::create_directory(dir / "folder");
  }
  void refused(const Arguments& arguments, const std::string& words) const {
    expect_refused_with(arguments, "longstride: " + words);
  }
};
TEST_F(Values, NumbersThatAreNotFinite) {
  for (const char* value : {"nan", "inf", "-inf", "NaN"}) {
    const std::string sentence = std::string(value) + " is not a finite number";
    refused({"sample", "run", "--temperature", value}, "--temperature: " + sentence);
    refused({"plan", "r.yaml", "--mfu", value}, "--mfu: " + sentence);
  }
  refused({"sample", "run", "--top-p", "nan"}, "--top-p: nan is not a finite number");
  refused({"plan", "r.yaml", "--peak-tflops", "inf"}, "--peak-tflops: inf is not a finite number");
  refused({"bench", "step", "r.yaml", "--seconds", "nan"}, "--seconds: nan is not a finite number");
  for (const char* option : {"--time-limit", "--train-seconds"})
    refused({"reproduce", "table1", option, "nan"}, std::string(option) + ": nan is not a finite number");
  EXPECT_FALSE(fs::exists(dir / "run/samples"));
}

// OpenBLAS asks again and again for memory that the limit refuses: with it a command never ended.
TEST_F(Values, ALimitOnAddressSpaceThatIsTooLow) {
  if (test::sanitized || built_with_cuda()) GTEST_SKIP() << "the libraries alone take more";
  const auto limited = [&](int kib, const std::string& arguments) {
    const int status =
        std::system(fmt::format("cd {} && ulimit -v {} && env -u OMP_NUM_THREADS -u OPENBLAS_NUM_THREADS "
                                "timeout -s KILL 30 {} {} >limited 2>&1",
                                dir.path(), kib, LONGSTRIDE_COMMAND, arguments)
                        .c_str());
    return CommandResult{WEXITSTATUS(status), text_of(dir / "limited"), ""};
  };
  const CommandResult version = limited(180000, "--version");
  EXPECT_EQ(version.exit_code, 0) << version.out;
  for (const char* command : {"train r.yaml --run limited-run", "eval run", "plan r.yaml", "attention run"}) {
    const CommandResult refused = limited(180000, command);
    EXPECT_EQ(refused.exit_code, 2) << command << ": " << refused.out;
    EXPECT_NE(refused.out.find("longstride: the limit on address space (ulimit -v) is 180000 KiB, which leaves no room "
                               "for matrix products on "),
              std::string::npos)
        << refused.out;
  }
  EXPECT_FALSE(fs::exists(dir / "limited-run"));
}

// The nearest number that fits used to be taken.
TEST_F(Values, WholeNumbersBeyond64Bits) {
  const std::string large = "99999999999999999999", most = "9223372036854775807";
  const auto beyond = [&](const std::string& value, const std::string& limit) {
    return ": " + value + " is out of range; give a whole number up to " + limit;
  };
  for (const std::string value : {"18446744073709551616", large.c_str(), "1e300"})
    refused({"sample", "run", "--seed", value}, "--seed" + beyond(value, "18446744073709551615"));
  refused({"sample", "run", "--top-k", large}, "--top-k" + beyond(large, most));
  refused({"eval", "run", "--windows", large}, "--windows" + beyond(large, most));
  refused({"eval", "run", "--batch", large}, "--batch" + beyond(large, most));
  refused({"prepare", "audio", "--input", "text.bin", "--output", "a.h5", "--rate", large},
          "--rate" + beyond(large, most));
  refused({"sample", "run", "--seed", "-1"}, "--seed: -1 is below 0");
  refused({"sample", "run", "--seed", "1.5"}, "--seed: 1.5 is not a whole number");
  refused({"info", "x.h5", "--sources", "-1"}, "--sources: -1 is below 0");
  EXPECT_EQ(run({"sample", "run", "--seed", "18446744073709551615", "--output", "drawn"}).exit_code, 0);
  EXPECT_EQ(run({"info", "x.h5", "--sources", "1e1"}).exit_code, 0);
}

// Empty values used to act as if the option had been left out.
TEST_F(Values, OptionsWithoutAValue) {
  const std::string sentence = ": '' is not a value; give one, or leave the option out";
  refused({"train", "r.yaml", "--run", ""}, "--run" + sentence);
  EXPECT_FALSE(fs::exists(dir / "runs"));
  const std::pair<const char*, Arguments> options[] = {
      {"eval", {"--data"}},
      {"sample", {"--output", "--prompt", "--prompt-text", "--complete"}},
      {"report", {"--output"}},
      {"attention", {"--data", "--output"}}};
  for (const auto& [command, names] : options) {
    for (const std::string& name : names) refused({command, "run", name, ""}, name + sentence);
    refused({command, ""}, "run: '' names no file or folder");
  }
  refused({"reproduce", "table1", "--recipes", ""}, "--recipes" + sentence);
}

TEST_F(Values, WhatASampleCannotHave) {
  const std::string purpose = "--prompt names a file whose bytes every sample begins with, or is - for standard input";
  refused({"sample", "run", "--prompt", "folder"}, "folder: is a directory; " + purpose);
  refused({"sample", "run", "--prompt", "empty"}, "empty: is empty; " + purpose);
  refused({"sample", "run", "--rate", "8000"},
          "--rate is 8000, but the samples of run are not sound; leave --rate out");
  refused({"sample", "run", "--precision", "bf16"},
          "--precision is bf16, which needs a GPU, and this runs on the CPU; leave --precision out");
  refused({"bench", "sample", "r.yaml", "--count", "9000000000000000000"}, "--count: ");
  EXPECT_FALSE(fs::exists(dir / "run/samples"));
}

// A mistake and what its message advises. Each advice is one that works.
TEST_F(Values, MistakesOfACommandLineSayWhatToDoInstead) {
  const struct {
    Arguments arguments;
    const char* words;
  } mistakes[] = {
      {{"train", "r.yaml", "--steps", "3"},
       "there is no option '--steps'; it is a key of the recipe: --set train.steps=3; see longstride train --help"},
      {{"train", "r.yaml", "--lr=0.001"},
       "there is no option '--lr'; it is a key of the recipe: --set train.lr=0.001;"},
      {{"plan", "r.yaml", "--batch-size", "8"},
       "there is no option '--batch-size'; it is a key of the recipe: --set train.global_batch=8;"},
      {{"train", "r.yaml", "--data", "x.h5"},
       "there is no option '--data'; it is a key of the recipe: --set data.path=x.h5;"},
      {{"train", "r.yaml", "--n-layer"},
       "there is no option '--n-layer'; it is a key of the recipe: --set "
       "model.layers=VALUE;"},
      {{"train", "r.yaml", "--resum"}, "there is no option '--resum' (did you mean '--resume'?);"},
      {{"eval", "run", "--lr", "1"}, "there is no option '--lr'"},
      {{"train", "run"},
       "run is the directory of a run; give its recipe, run/recipe.yaml, and to continue that run also --run run "
       "--resume"},
      {{"eval", "r.yaml"},
       "r.yaml: is a file; give the directory of a run that has saved a checkpoint, such as runs/mine"},
      {{"eval", "run", "--data", "sound.h5"},
       "sound.h5: holds audio, but the run was trained on bytes; choose data of that kind, or a run of this one"},
      {{"help", "trian"}, "there is no command 'trian'; choose from prepare, info, "},
      {{"help", "prepare", "text"}, "there is no command 'text'; choose from bytes, tokens, cifar10, images, audio"},
      {{"plan", "tab.yaml"}, "tab.yaml:2: is indented with a tab, which YAML does not allow; use spaces"},
  };
  write_text(dir / "tab.yaml", "data:\n\tkind: bytes\n");
  const std::vector<float> sound(20000, 0.5F);
  for (const char* name : {"a.wav", "b.wav", "c.wav"}) write_wav(dir / name, sound, 8000);
  const CommandResult made = run({"prepare", "audio", "--input", "a.wav", "--valid-input", "b.wav", "--test-input",
                                  "c.wav", "--rate", "8000", "--output", "sound.h5"});
  ASSERT_EQ(made.exit_code, 0) << made.err;
  for (const auto& [arguments, words] : mistakes) refused(arguments, words);
  const CommandResult continued = run({"train", "run/recipe.yaml", "--run", "run", "--resume"});
  EXPECT_EQ(continued.exit_code, 0) << continued.err;
}

TEST_F(Values, AFinishedRunThatIsResumedSaysHowToTrainItFurther) {
  const CommandResult done = run({"train", "r.yaml", "--run", "run", "--resume"});
  EXPECT_EQ(done.exit_code, 0);
  const std::string words = "run: has done all of its 2 steps; to train it further, add ";
  const std::size_t at = done.err.find(words);
  ASSERT_NE(at, std::string::npos) << done.err;
  EXPECT_EQ(done.err.substr(at + words.size()), "--resume-changed --set train.steps=4\n");
  fs::copy(dir / "run", dir / "further", fs::copy_options::recursive);
  const CommandResult further =
      run({"train", "r.yaml", "--run", "further", "--resume-changed", "--set", "train.steps=4"});
  EXPECT_EQ(further.exit_code, 0) << further.err;
}

TEST_F(Values, HelpOfACommandIsWhatItsOptionPrints) {
  for (const Arguments& command : {Arguments{}, Arguments{"train"}, Arguments{"prepare", "bytes"}}) {
    Arguments help = {"help"}, option = command;
    help.insert(help.end(), command.begin(), command.end());
    option.emplace_back("--help");
    const CommandResult shown = run(help);
    EXPECT_EQ(shown.exit_code, 0) << shown.err;
    EXPECT_EQ(shown.out, run(option).out);
  }
}

// An installed program finds its recipes, whatever the directory.
TEST_F(Values, InstalledRecipesAreFoundByName) {
  for (const char* folder : {"prefix/bin", "prefix/share/longstride"}) fs::create_directories(dir / folder);
  fs::copy(LONGSTRIDE_SOURCE_DIR "/recipes", dir / "prefix/share/longstride/recipes", fs::copy_options::recursive);
  fs::copy_file(LONGSTRIDE_COMMAND, dir / "prefix/bin/longstride");
  const auto installed = [&](const std::string& arguments) {
    const std::string line = "cd / && OMP_NUM_THREADS=1 " + (dir / "prefix/bin/longstride ") + arguments;
    const int status = std::system((line + " >" + (dir / "shown") + " 2>&1").c_str());
    return CommandResult{WEXITSTATUS(status), text_of(dir / "shown"), ""};
  };
  for (const char* name :
       {"recipes/quickstart/text.yaml", "quickstart/text.yaml", "quickstart/text", "beyond/text-8min"}) {
    const CommandResult planned = installed(std::string("plan --device cpu --peak-tflops 1 ") + name);
    EXPECT_EQ(planned.exit_code, 0) << planned.out;
    EXPECT_NE(planned.out.find(std::string(name) + ": is taken from "), std::string::npos) << planned.out;
  }
  const CommandResult none = installed("plan quickstart/txt");
  EXPECT_EQ(none.exit_code, 2);
  const CommandResult rows = installed("reproduce table1 --row none --output " + (dir / "rows"));
  EXPECT_NE(rows.out.find("choose from cifar10-strided"), std::string::npos) << rows.out;
}

// Memory used to be allocated for all of them.
TEST_F(Values, ABatchOfMoreWindowsThanThereAre) {
  const CommandResult all = run({"eval", "run", "--split", "valid", "--batch", "7"});
  for (const char* batch : {"1e10", "10000000000", "9223372036854775807"}) {
    const CommandResult clamped = run({"eval", "run", "--split", "valid", "--batch", batch});
    EXPECT_EQ(clamped.exit_code, 0) << clamped.err;
    EXPECT_EQ(clamped.out, all.out);
  }
}

// A path of a run may hold any bytes, but JSON may not.
TEST_F(Values, TheJsonOfARunWhosePathIsNotUtf8) {
  fs::copy(dir / "run", dir / "run\xff", fs::copy_options::recursive);
  const CommandResult r = run({"eval", "run\xff", "--json"});
  EXPECT_EQ(r.exit_code, 0) << r.err;
  EXPECT_NE(r.out.find("bits_per_byte"), std::string::npos);
}

}  // namespace
}  // namespace longstride::testing
