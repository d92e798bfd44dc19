// Rules for --output, and how a command deals with standard input, output and error in any state.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <csignal>

#include "tests/support/text_run.h"

namespace longstride::testing {
namespace {

namespace fs = std::filesystem;

const std::string recipe =
    text_recipe(2, "steps: 2, global_batch: 4, lr: 1.0e-3, warmup: 1, log_every: 1, checkpoint_every: 50");

class Output : public TextRun {
 protected:
  Output() : TextRun(recipe, {}) {}
  void train() { run_well({"train", "r.yaml", "--run", "run"}); }

  // A line for the shell, in which $L is the command.
  CommandResult shell(const std::string& line) {
    write_text(dir / ".line", std::string("L='") + LONGSTRIDE_COMMAND + "'; export OMP_NUM_THREADS=1; " + line + "\n");
    const int status = std::system(("cd " + dir.path() + "; bash .line >.out 2>.err").c_str());
    return {WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status), text(".out"), text(".err")};
  }
};

const char* const exists_already = ": already exists; choose another --output, or replace it with --force";
const char* const holds_files =
    ": already holds files; choose another folder with --output, or write into it with --force";

TEST_F(Output, AFileThatExistsIsReplacedOnlyWithForce) {
  train();
  ASSERT_EQ(run({"report", "run", "--output", "page"}).exit_code, 0);
  const std::string page = text_of(dir / "page");
  ASSERT_EQ(run({"sample", "run"}).exit_code, 0);  // the next page differs
  for (const auto& [command, old] :
       {std::pair{std::vector<std::string>{"report", "run"}, page},
        std::pair{std::vector<std::string>{"show", "pattern", "r.yaml"}, std::string("old")}}) {
    SCOPED_TRACE(command[0]);
    write_text(dir / "a", old);
    auto arguments = command;
    arguments.insert(arguments.end(), {"--output", "a"});
    expect_refused(arguments, std::string("a") + exists_already);
    EXPECT_EQ(text_of(dir / "a"), old);
    arguments.emplace_back("--force");
    EXPECT_EQ(run(arguments).exit_code, 0);
    EXPECT_NE(text_of(dir / "a"), old);
  }
}

TEST_F(Output, AFolderThatHoldsFilesIsWrittenIntoOnlyWithForce) {
  train();
  for (const std::vector<std::string>& command :
       {std::vector<std::string>{"sample", "run", "--count", "1"}, {"attention", "run"}, {"export", "r.yaml"}}) {
    SCOPED_TRACE(command[0]);
    fs::remove_all(dir / "folder");
    write_text(dir / "folder/note", "mine");
    auto arguments = command;
    arguments.insert(arguments.end(), {"--output", "folder"});
    expect_refused(arguments, std::string("folder") + holds_files);
    arguments.emplace_back("--force");
    EXPECT_EQ(run(arguments).exit_code, 0);
    EXPECT_EQ(text_of(dir / "folder/note"), "mine");
    EXPECT_GT(std::distance(fs::directory_iterator(dir / "folder"), fs::directory_iterator()), 1);
  }
  // The run's own folders and page are replaced, whether named or not.
  for (const std::vector<std::string>& command : {std::vector<std::string>{"sample", "run", "--count", "1"},
                                                  {"sample", "run", "--count", "1", "--output", "run/samples"},
                                                  {"attention", "run", "--output", "./run/attention/"},
                                                  {"report", "run"}})
    for (int i = 0; i < 2; ++i) EXPECT_EQ(run(command).exit_code, 0);
}

TEST_F(Output, WhatIsReadIsNeverReplaced) {
  train();
  const std::string metrics = text_of(dir / "run/metrics.jsonl");
  fs::create_symlink("run/metrics.jsonl", dir / "link");
  for (const char* name : {"run/metrics.jsonl", "link", "run/../run/metrics.jsonl"})
    expect_refused(
        {"report", "run", "--output", name, "--force"},
        std::string(name) + ": is in the run that the report is made from; give --output a name that ends in .html");
  EXPECT_EQ(text_of(dir / "run/metrics.jsonl"), metrics);
  expect_refused({"show", "pattern", "r.yaml", "--output", "r.yaml", "--force"},
                 "r.yaml: is also the input, which would be lost; choose another --output");
  fs::create_directory(dir / "e");
  fs::copy(dir / "r.yaml", dir / "e/recipe.yaml");
  expect_refused({"export", "e/recipe.yaml", "--output", "e", "--force"},
                 "e: holds recipe.yaml, which is read and might be replaced; choose another folder with --output");
  write_text(dir / "s/sample-000.txt", "abc");
  expect_refused({"sample", "run", "--prompt", "s/sample-000.txt", "--output", "s", "--force"},
                 "s: holds sample-000.txt, which is read and might be replaced; choose another folder with --output");
  EXPECT_EQ(text_of(dir / "r.yaml"), recipe);
  EXPECT_EQ(text_of(dir / "e/recipe.yaml"), recipe);
  EXPECT_EQ(text_of(dir / "s/sample-000.txt"), "abc");
}

TEST_F(Output, PipesAndDevicesAreWrittenThrough) {
  train();
  EXPECT_EQ(run({"report", "run", "--output", "/dev/null"}).exit_code, 0);
  EXPECT_TRUE(fs::is_character_file("/dev/null"));
  expect_refused({"report", "run", "--output", "/dev/full"},
                 "/dev/full: cannot write: No space left on device; free some space and try again");
  const CommandResult appended = shell("echo old >page; $L report run --output /dev/stdout >>page; cat page");
  EXPECT_TRUE(appended.out.starts_with("old\n<!doctype html>")) << appended.out.substr(0, 100);
  EXPECT_TRUE(appended.out.ends_with("</html>\n"));
  const CommandResult piped = shell("mkfifo pipe; cat pipe & $L show pattern r.yaml --output pipe; wait; test -p pipe");
  EXPECT_EQ(piped.exit_code, 0);
  EXPECT_TRUE(piped.out.starts_with("\x89PNG")) << piped.out.substr(0, 100);
  const CommandResult mixed = shell("$L show pattern r.yaml --json --output /dev/stdout | cat; exit ${PIPESTATUS[0]}");
  EXPECT_EQ(mixed.exit_code, 2);
  EXPECT_EQ(mixed.out, "");
  EXPECT_EQ(
      shell("mkfifo p2; timeout 20 $L prepare bytes --input text.bin --output p2 --force").err,
      "longstride: p2: is a pipe, a socket or a device, but this needs a regular file; choose another --output\n");
}

TEST_F(Output, StandardOutputThatCannotBeWrittenIsAFailure) {
  const std::string full = "longstride: standard output cannot be written";
  for (const char* command : {"--help", "--version", "plan r.yaml", "plan r.yaml --json", "info x.h5",
                              "show pattern r.yaml", "eval --help"}) {
    SCOPED_TRACE(command);
    for (const char* where : {" >/dev/full", " >&-"}) {
      const CommandResult result = shell(std::string("$L ") + command + where);
      EXPECT_EQ(result.exit_code, 2) << where;
      EXPECT_TRUE(result.err.starts_with(full)) << result.err;
      EXPECT_EQ(std::count(result.err.begin(), result.err.end(), '\n'), 1) << result.err;
    }
  }
  // A reader that stops early is not an error to report: the signal ends the command, like any other program.
  EXPECT_EQ(shell("(sleep 0.3; exec $L show pattern r.yaml) | true; exit ${PIPESTATUS[0]}").exit_code, 128 + SIGPIPE);
  EXPECT_EQ(shell("(sleep 0.3; exec $L show pattern r.yaml) | true").err, "");
}

TEST_F(Output, MessagesThatCannotBeWrittenAreLostWithoutHarm) {
  EXPECT_EQ(shell("$L plan nothing.yaml 2>/dev/full").exit_code, 2);
  EXPECT_EQ(shell("$L train r.yaml --run a 2>/dev/full").exit_code, 0);
  EXPECT_EQ(shell("$L train r.yaml --run b --set train.steps=100 2>&1 | head -n 1 >/dev/null; exit ${PIPESTATUS[0]}")
                .exit_code,
            0);
  EXPECT_TRUE(fs::exists(dir / "b/checkpoints/step-00000100"));
}

// The next file to be opened would take the number of a closed descriptor, and receive what is printed.
TEST_F(Output, ClosedDescriptorsTakeNoFile) {
  EXPECT_EQ(shell("$L train r.yaml --run run <&- >&- 2>&-").exit_code, 0);
  const std::string metrics = text_of(dir / "run/metrics.jsonl");
  EXPECT_EQ(std::count(metrics.begin(), metrics.end(), '\n'), 4);  // two steps, an evaluation, the memory
  EXPECT_EQ(metrics.find("bits/byte"), std::string::npos) << metrics;
  EXPECT_EQ(shell("$L prepare bytes --input text.bin --output y.h5 <&- 2>&-").exit_code, 0);
  EXPECT_EQ(run({"info", "y.h5", "--verify"}).exit_code, 0);
}

TEST_F(Output, NamesAreShownWithoutControlCharacters) {
  expect_refused(
      {"plan", "no\n\x1b[31m.yaml"},
      "no\\n\\x1b[31m.yaml: cannot be read; give the file of a recipe, such as recipes/quickstart/text.yaml");
  expect_refused({"info", "no\xff\n.h5"},
                 "no\\xff\\n.h5: does not exist; make it with `longstride prepare`, or correct the path");
  expect_refused({"pl\nan"}, "there is no command 'pl\\nan' (did you mean 'plan'?); see longstride --help");
  EXPECT_EQ(run({"train", "r.yaml", "--run", "ru\x1bn"}).err.find('\x1b'), std::string::npos);
}

// Failures in the middle of a run: progress is saved; if that is impossible, the sentence names the last checkpoint.
class LostRun : public Output {
 protected:
  // Trains without end, runs `what` when 20 steps are logged, and waits.
  CommandResult interrupted(const std::string& what) {
    return shell(
        "$L train r.yaml --run run --set train.steps=1000000 & p=$!; for i in $(seq "
        "1000); do grep -qs '\"step\":20,' run/metrics.jsonl && break; sleep 0.01; done; " +
        what + "; wait $p");
  }
  static std::string last_line(const std::string& text) {
    const std::string whole = text.substr(0, text.size() - 1);
    return whole.substr(whole.rfind('\n') + 1);
  }
  void expect_ended(const CommandResult& result, const std::string& begin) {
    const std::string last = last_line(result.err), sentence = "; the last checkpoint is step ";
    EXPECT_EQ(result.exit_code, 2);
    EXPECT_TRUE(last.starts_with("longstride: " + begin)) << result.err;
    ASSERT_NE(last.rfind(sentence), std::string::npos) << last;
    const int step = std::stoi(last.substr(last.rfind(sentence) + sentence.size()));
    EXPECT_GE(step, 20);
    EXPECT_TRUE(fs::exists(dir / fmt::format("run/checkpoints/step-{:08}/state.json", step))) << step;
  }
};

TEST_F(LostRun, MetricsThatAreGoneEndItAfterACheckpoint) {
  for (const char* name : {"metrics.jsonl", "events*"}) {
    SCOPED_TRACE(name);
    fs::remove_all(dir / "run");
    expect_ended(interrupted(std::string("rm run/") + name), "run/");
  }
}

TEST_F(LostRun, ADirectoryThatIsRenamedEndsIt) {
  const CommandResult result = interrupted("mv run elsewhere");
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_NE(last_line(result.err).find("checkpoint"), std::string::npos) << result.err;
  const std::string metrics = text_of(dir / "elsewhere/metrics.jsonl");
  EXPECT_TRUE(metrics.ends_with("}\n"));
}

TEST_F(LostRun, AHangupSaves) {
  const CommandResult result = interrupted("kill -HUP $p");
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_TRUE(last_line(result.err).starts_with("stopped at step ")) << result.err;
  EXPECT_FALSE(fs::is_empty(dir / "run/checkpoints"));
}

}  // namespace
}  // namespace longstride::testing
