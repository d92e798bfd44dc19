// Output and prompts of `sample`, and the scores that `eval` keeps in the run.
#include <gtest/gtest.h>
#include <pty.h>
#include <sys/wait.h>
#include <unistd.h>

#include <nlohmann/json.hpp>
#include <sstream>

#include "launch/report/run_history.h"
#include "tests/support/text_run.h"

namespace longstride::testing::scores_and_samples_test {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

class ScoresAndSamples : public TextRun {
 protected:
  ScoresAndSamples() {
    write_text(dir / "prompt", "hello");
    write_text(dir / "empty", "");
    write_text(dir / "long", std::string(64, 'x'));
  }
  std::vector<Json> kept() const {
    std::vector<Json> lines;
    std::istringstream text(text_of(dir / "run/evaluations.jsonl"));
    for (std::string line; std::getline(text, line);) lines.push_back(Json::parse(line));
    return lines;
  }
  std::string sample_file(int number) const { return text(fmt::format("run/samples/sample-00{}.txt", number)); }
};
TEST_F(ScoresAndSamples, TextIsPrintedByteForByteAndKept) {
  const CommandResult drawn = run_well({"sample", "run"});
  EXPECT_EQ(drawn.out.size(), 64U);
  EXPECT_EQ(drawn.out, sample_file(0));
  EXPECT_NE(drawn.err.find("1 sample of 64 bytes at temperature 1 from step 2: run/samples\n"), std::string::npos)
      << drawn.err;
}

TEST_F(ScoresAndSamples, SeveralSamplesHaveHeadings) {
  const CommandResult drawn = run_well({"sample", "run", "--count", "2", "--seed", "5"});
  const auto ended = [](const std::string& text) { return text.ends_with('\n') ? text : text + '\n'; };
  EXPECT_EQ(drawn.out,
            "==> sample-000.txt <==\n" + ended(sample_file(0)) + "\n==> sample-001.txt <==\n" + ended(sample_file(1)));
}

// Otherwise the report would show samples of several commands as those of one.
TEST_F(ScoresAndSamples, OlderSamplesOfTheRunAreReplaced) {
  run_well({"sample", "run", "--count", "3"});
  fs::create_directory(dir / "run/samples/step-00000002");
  write_text(dir / "run/samples/notes.txt", "mine");
  run_well({"sample", "run", "--count", "2"});
  EXPECT_TRUE(fs::exists(dir / "run/samples/sample-001.txt"));
  EXPECT_FALSE(fs::exists(dir / "run/samples/sample-002.txt"));
  EXPECT_TRUE(fs::exists(dir / "run/samples/step-00000002"));
  EXPECT_TRUE(fs::exists(dir / "run/samples/notes.txt"));
  run_well({"sample", "run", "--count", "1", "--output", "run/samples", "--force"});
  EXPECT_FALSE(fs::exists(dir / "run/samples/sample-001.txt"));
}

TEST_F(ScoresAndSamples, AFolderThatIsNamedTakesThePlaceOfThePrint) {
  const CommandResult drawn = run_well({"sample", "run", "--output", "drawn"});
  EXPECT_EQ(drawn.out, "1 sample of 64 bytes at temperature 1 from step 2: drawn\n");
  EXPECT_EQ(text_of(dir / "drawn/sample-000.txt").size(), 64U);
}

TEST_F(ScoresAndSamples, WhatCannotBeWrittenToIsRefused) {
  expect_refused({"sample", "run", "--output", "-"}, "-: names no folder to write to; give --output a name");
  expect_refused({"report", "run", "--output", "no/such/page.html"},
                 "no/such/page.html: there is no folder no/such; make it, or choose another --output");
  const std::string name(300, 'n');
  expect_refused({"report", "run", "--output", name},
                 name + ": cannot be written: File name too long; choose another --output");
  expect_refused({"show", "pattern", name}, name + ": File name too long");
}

TEST_F(ScoresAndSamples, NoScoreDependsOnLaterBytes) {
  const CommandResult leak = run_well({"eval", "run", "--leak", "--windows", "2", "--json"});
  const Json found = Json::parse(leak.out);
  EXPECT_EQ(found.at("windows"), 2);
  EXPECT_EQ(found.at("largest_leak"), 0.0);
  EXPECT_EQ(found.at("mean_leak"), 0.0);
}

TEST_F(ScoresAndSamples, ADecoderPredictsEveryByte) {
  write_text(dir / "short.txt", "abcab");
  const std::string lines = run_well({"predict", "run", "--input", "short.txt", "--device", "cpu"}).out;
  std::istringstream in(lines);
  std::string bytes;
  for (std::string line; std::getline(in, line);) {
    const auto answer = nlohmann::json::parse(line);
    EXPECT_EQ(answer.at("position"), std::ssize(bytes));
    bytes += static_cast<char>(answer.at("byte").get<int>());
    if (answer.at("byte") == answer.at("predicted"))
      EXPECT_NEAR(answer.at("bits").get<double>(), -std::log2(answer.at("probability").get<double>()), 1e-9);
    else
      EXPECT_GE(answer.at("bits").get<double>(), -std::log2(answer.at("probability").get<double>()));
  }
  EXPECT_EQ(bytes, "abcab");
}

TEST_F(ScoresAndSamples, AReportReplacesOnlyAReport) {
  const auto refusal = [&](const std::string& name) {
    return name +
           ": was not written by `longstride report`, so it is not replaced; move it away, or name another file "
           "with --output";
  };
  write_text(dir / "precious.txt", "precious");
  expect_refused({"report", "run", "--output", "precious.txt", "--force"}, refusal("precious.txt"));
  EXPECT_EQ(text_of(dir / "precious.txt"), "precious");
  write_text(dir / "run/report.html", "<!doctype html>\n<html lang=\"en\">\n");
  expect_refused({"report", "run"}, refusal("run/report.html"));
  write_text(dir / "run/report.html", "");
  for (int i = 0; i < 2; ++i) run_well({"report", "run"});
  fs::copy(dir / "run/report.html", dir / "page.html");
  run_well({"report", "run", "--output", "page.html", "--force"});
}

TEST_F(ScoresAndSamples, APromptIsAFileOrTextOrStandardInput) {
  const std::string from_file = run_well({"sample", "run", "--prompt", "prompt"}).out;
  EXPECT_TRUE(from_file.starts_with("hello")) << from_file;
  EXPECT_EQ(run_well({"sample", "run", "--prompt-text", "hello"}).out, from_file);
  const InputFrom input(dir / "prompt");
  EXPECT_EQ(run_well({"sample", "run", "--prompt", "-"}).out, from_file);
}

TEST_F(ScoresAndSamples, APromptThatDoesNotFitIsRefused) {
  const std::string limit = ": the prompt must be shorter than the 64 bytes of a sample; shorten it, or raise --length";
  expect_refused({"sample", "run", "--prompt-text", std::string(64, 'x')}, "--prompt-text" + limit);
  {
    const InputFrom input(dir / "long");
    expect_refused({"sample", "run", "--prompt", "-"}, "standard input" + limit);
  }
  const InputFrom input(dir / "empty");
  expect_refused({"sample", "run", "--prompt", "-"},
                 "standard input: is empty; --prompt names a file whose bytes every sample begins with, or is - for "
                 "standard input; leave it out to begin with nothing");
  const CommandResult both = run({"sample", "run", "--prompt", "prompt", "--prompt-text", "hello"});
  EXPECT_EQ(both.exit_code, 2);
  EXPECT_NE(both.err.find("excludes --prompt"), std::string::npos) << both.err;
}

// The output of a program on a terminal of its own.
std::string on_terminal(const std::string& command) {
  int terminal = -1, end = -1;
  if (::openpty(&terminal, &end, nullptr, nullptr, nullptr) != 0) return "no terminal";
  const pid_t child = ::fork();
  if (child == 0) {
    ::dup2(end, STDOUT_FILENO);
    ::execl("/bin/sh", "sh", "-c", command.c_str(), nullptr);
    ::_exit(127);
  }
  ::close(end);
  std::string shown;
  char bytes[512];
  // A terminal whose other end is closed gives an error instead of the end of a file.
  for (ssize_t n = 0; (n = ::read(terminal, bytes, sizeof bytes)) > 0;)
    shown.append(bytes, static_cast<std::size_t>(n));
  ::close(terminal);
  ::waitpid(child, nullptr, 0);
  return shown;
}

// A model of text may draw escape sequences, which could do anything to the terminal.
TEST_F(ScoresAndSamples, ATerminalIsShownEscapeSequencesAsText) {
  write_text(dir / "colour", "\x1b[31mred\ttab\n");
  const std::string arguments = " sample run --prompt colour --length 16 2>/dev/null", command = LONGSTRIDE_COMMAND;
  const std::string shown = on_terminal("cd " + dir.path() + " && " + command + arguments);
  EXPECT_TRUE(shown.starts_with("\\x1b[31mred\ttab\r\n")) << shown;
  EXPECT_EQ(shown.find('\x1b'), std::string::npos);
  EXPECT_TRUE(
      run_well({"sample", "run", "--prompt", "colour", "--length", "16"}).out.starts_with("\x1b[31mred\ttab\n"));
}

// A counter's line ends before the result begins.
TEST_F(ScoresAndSamples, OnATerminalTheCounterAndTheResultHaveLinesOfTheirOwn) {
  for (const auto& [arguments, result] :
       {std::pair(" attention run --output drawn-on", "drawn-on: "), {" eval run", "x.h5, "}}) {
    const std::string shown = on_terminal("cd " + dir.path() + " && " + LONGSTRIDE_COMMAND + arguments + " 2>&1");
    EXPECT_NE(shown.find(std::string("\x1b[K\r\n") + result), std::string::npos) << shown;
  }
}

TEST_F(ScoresAndSamples, APromptOfTextIsForRunsOnText) {
  std::string header = "{'descr': '|u1', 'fortran_order': False, 'shape': (40, 4, 4, 3), }";
  header.resize(117, ' ');
  write_text(dir / "pictures.npy", std::string("\x93NUMPY\1\0v\0", 10) + header + '\n' + std::string(40 * 48, 'x'));
  run_well({"prepare", "images", "--input", "pictures.npy", "--output", "pictures.h5", "--size", "4"});
  run_well({"train", "r.yaml", "--run", "pictures", "--set", "data={kind: images, path: pictures.h5, context: 48}"});
  expect_refused({"sample", "pictures", "--prompt-text", "hello"},
                 "--prompt-text is for runs on text, but the samples of pictures are pictures; give their first bytes "
                 "in a file with --prompt");
}

TEST_F(ScoresAndSamples, EveryScoreIsKeptInTheRun) {
  const Json shown = Json::parse(run_well({"eval", "run", "--json"}).out);
  run_well({"eval", "run", "--split", "valid", "--windows", "2"});
  const std::vector<Json> lines = kept();
  ASSERT_EQ(lines.size(), 2U);
  EXPECT_EQ(lines[0].at("step"), 2);
  EXPECT_EQ(lines[0].at("split"), "test");
  EXPECT_EQ(lines[0].at("windows"), (shown.at("bytes").get<int>() + 63) / 64);
  EXPECT_EQ(lines[0].at("bits_per_byte"), shown.at("bits_per_byte"));
  EXPECT_EQ(lines[0].at("weights"), "last");
  EXPECT_EQ(lines[1].at("split"), "valid");
  EXPECT_EQ(lines[1].at("windows"), 2);
  EXPECT_EQ(lines[1].at("bytes"), 128);
  run_well({"report", "run"});
  EXPECT_NE(text_of(dir / "run/report.html").find("<td>valid</td>"), std::string::npos);
}

TEST_F(ScoresAndSamples, AModelWithoutAMemoryRefusesAnother) {
  expect_refused({"eval", "run", "--memory", "64"},
                 "--memory cannot be used with this model, which has no memory of a length that an evaluation could "
                 "set; leave it out");
  expect_refused({"eval", "run", "--clamp", "64"},
                 "--clamp cannot be used with this model, which has no distances with a limit that an evaluation could "
                 "set; leave it out");
  expect_refused({"eval", "run", "--same-length"},
                 "--same-length cannot be used with this model, which remembers no positions (model.memory)");
}

TEST_F(ScoresAndSamples, TheSameAnswerIsKeptOnce) {
  for (int i = 0; i < 2; ++i) run_well({"eval", "run", "--windows", "2"});
  EXPECT_EQ(kept().size(), 1U);
  run_well({"eval", "run", "--windows", "2", "--spread"});  // other windows of the same number
  ASSERT_EQ(kept().size(), 2U);
  const std::vector<KeptEvaluation> read = kept_evaluations(dir / "run");
  EXPECT_FALSE(read[0].same_question(read[1]));
}

// A process that was killed while it wrote must not spoil the next line.
TEST_F(ScoresAndSamples, ALineThatWasCutShortIsLeftBehind) {
  write_text(dir / "run/evaluations.jsonl", "{\"step\": 1, \"spl");
  run_well({"eval", "run", "--windows", "1"});
  const std::vector<KeptEvaluation> read = kept_evaluations(dir / "run");
  ASSERT_EQ(read.size(), 1U);
  EXPECT_EQ(read[0].step, 2);
  EXPECT_EQ(read[0].windows, 1);
}

TEST_F(ScoresAndSamples, AScoreThatCannotBeKeptIsStillPrinted) {
  fs::create_directories(dir / "run/evaluations.jsonl");
  const CommandResult scored = run({"eval", "run", "--windows", "1"});
  EXPECT_EQ(scored.exit_code, 0);
  EXPECT_NE(scored.out.find("bits per byte"), std::string::npos);
  EXPECT_NE(scored.err.find("the score is not kept in the run: "), std::string::npos) << scored.err;
  EXPECT_NE(scored.err.find("evaluations.jsonl"), std::string::npos) << scored.err;
}

TEST_F(ScoresAndSamples, OfARunWithoutCheckpointsDoNotJoinANewOnes) {
  fs::copy(dir / "run", dir / "emptied", fs::copy_options::recursive);
  ASSERT_EQ(run({"eval", "emptied", "--windows", "1"}).exit_code, 0);
  fs::remove_all(dir / "emptied/checkpoints");
  expect_refused(
      {"train", "r.yaml", "--run", "emptied"},
      "emptied: holds the scores of a run whose checkpoints are gone, evaluations.jsonl; delete that file, or "
      "choose another directory with --run");
  fs::remove(dir / "emptied/evaluations.jsonl");
  EXPECT_EQ(run({"train", "r.yaml", "--run", "emptied"}).exit_code, 0);
}

TEST_F(ScoresAndSamples, OfAnEarlierRunAreNotShownAsANewOnes) {
  const std::vector<std::string> train = {"train", "r.yaml", "--run", "again", "--set", "train.sample_every=1"};
  ASSERT_EQ(run(train).exit_code, 0);
  for (const char* command : {"sample", "attention"}) ASSERT_EQ(run({command, "again"}).exit_code, 0) << command;
  for (const char* file : {"samples/step-00000001/mine.txt", "samples/mine.txt", "attention/mine.txt"})
    write_text(dir / (std::string("again/") + file), "kept");
  fs::remove_all(dir / "again/checkpoints");
  ASSERT_EQ(run({"train", "r.yaml", "--run", "again"}).exit_code, 0);
  std::set<std::string> left;
  for (const char* folder : {"samples", "attention"})
    for (const auto& entry : fs::recursive_directory_iterator(dir / (std::string("again/") + folder)))
      if (entry.is_regular_file()) left.insert(fs::relative(entry.path(), dir / "again").string());
  EXPECT_EQ(left, (std::set<std::string>{"attention/mine.txt", "samples/mine.txt", "samples/step-00000001/mine.txt"}));
  EXPECT_FALSE(fs::exists(dir / "again/samples/step-00000002"));
}

class Remembering : public TextRun {
 protected:
  Remembering() : TextRun(remembering_recipe("length: 24", "steps: 3, global_batch: 2, lr: 1.0e-3, warmup: 1")) {}
};
TEST_F(Remembering, ScoresSayUnderWhichMemoryTheyWereComputed) {
  const std::string file = "run/checkpoints/step-00000003/", recipe_before = text_of(dir / "run/recipe.yaml"),
                    state_before = text_of(dir / (file + "state.json")),
                    weights_before = text_of(dir / (file + "model.safetensors"));
  const Json own = Json::parse(run({"eval", "run", "--json"}).out);
  EXPECT_EQ(own.at("memory"), 24);
  EXPECT_EQ(own.at("streams"), 1);
  EXPECT_EQ(own.at("min_context"), 0);
  EXPECT_FALSE(own.contains("clamp"));
  const std::vector<std::string> other = {"eval", "run", "--memory", "48", "--clamp", "4e1", "--min-context", "30"};
  std::vector<std::string> in_json = other;
  in_json.emplace_back("--json");
  const Json changed = Json::parse(run(in_json).out);
  const CommandResult shown = run(other);
  EXPECT_NE(shown.out.find("context 32 (at least 30), memory 48, clamp 40: "), std::string::npos) << shown.out;
  std::vector<Json> lines;
  std::istringstream text(text_of(dir / "run/evaluations.jsonl"));
  for (std::string line; std::getline(text, line);) lines.push_back(Json::parse(line));
  ASSERT_EQ(lines.size(), 2U);
  EXPECT_EQ(lines[0].at("memory"), 24);
  EXPECT_FALSE(lines[0].contains("clamp"));
  for (const Json& score : {changed, lines[1]}) {
    EXPECT_EQ(score.at("memory"), 48);
    EXPECT_EQ(score.at("clamp"), 40);
    EXPECT_EQ(score.at("min_context"), 30);
    EXPECT_NE(score.at("bits_per_byte"), own.at("bits_per_byte"));
  }
  const std::vector<KeptEvaluation> kept = kept_evaluations(dir / "run");
  EXPECT_EQ(kept[1].memory, (EvaluatedMemory{48, 40}));
  EXPECT_EQ(run({"eval", "run", "--batch", "2"}).exit_code, 0);  // another question: streams begin without a memory
  EXPECT_EQ(kept_evaluations(dir / "run").back().streams, 2);
  EXPECT_EQ(run({"report", "run"}).exit_code, 0);
  const std::string report = text_of(dir / "run/report.html");
  EXPECT_NE(report.find("<td>48, clamp 40</td>"), std::string::npos);
  EXPECT_NE(report.find("<td>24, 2 streams</td>"), std::string::npos);
  EXPECT_TRUE(text_of(dir / "run/recipe.yaml") == recipe_before);
  EXPECT_TRUE(text_of(dir / (file + "state.json")) == state_before);
  EXPECT_TRUE(text_of(dir / (file + "model.safetensors")) == weights_before);
}

TEST_F(Remembering, ARunContinuesOnlyWithAsManyRows) {
  for (const char* flag : {"--resume", "--resume-changed"})
    expect_refused({"train", "r.yaml", "--run", "run", flag, "--set", "train.global_batch=4"},
                   "train.global_batch is 4, but the run in run began with 2; resume it with its own recipe, or start "
                   "another run");
}

// The rate is too small to change a weight.
TEST_F(Remembering, AnotherMemoryScoresAsARunThatHasIt) {
  const auto score_of = [&](std::vector<std::string> arguments) {
    arguments.insert(arguments.end(), {"--json", "--quiet"});
    const CommandResult result = run(arguments);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return Json::parse(result.out).at("loss").get<double>();
  };
  const CommandResult trained =
      run({"train", "r.yaml", "--run", "longer", "--from", "run", "--set", "model.memory.length=48", "--set",
           "model.distance.distances=41", "--set", "train.lr=1e-37", "--set", "train.weight_decay=0"});
  ASSERT_EQ(trained.exit_code, 0) << trained.err;
  EXPECT_EQ(score_of({"eval", "run", "--memory", "48", "--clamp", "40"}), score_of({"eval", "longer"}));
  EXPECT_EQ(score_of({"eval", "longer", "--memory", "24", "--clamp", "100"}), score_of({"eval", "run"}));
  // As long as what is read in effect, or it would take hours.
  EXPECT_EQ(score_of({"eval", "run", "--memory", "8388608", "--windows", "3"}),
            score_of({"eval", "run", "--memory", "96", "--windows", "3"}));
  const double whole = score_of({"eval", "run"});
  EXPECT_NEAR(score_of({"eval", "run", "--batch", "7", "--min-context", "57"}), whole, 1e-6 * whole);
  EXPECT_GT(std::abs(score_of({"eval", "run", "--batch", "7"}) - whole), 1e-6 * whole);
}

TEST_F(Remembering, TheSameLengthScoresAsARunWithThatWindow) {
  ASSERT_EQ(run({"train", "r.yaml", "--run", "windowed", "--from", "run", "--set", "model.distance.window=24", "--set",
                 "train.lr=1e-37", "--set", "train.weight_decay=0"})
                .exit_code,
            0);
  const Json windowed = Json::parse(run({"eval", "windowed", "--json"}).out),
             same = Json::parse(run({"eval", "run", "--same-length", "--json"}).out);
  EXPECT_EQ(same.at("loss"), windowed.at("loss"));
  EXPECT_EQ(same.at("same_length"), true);
  EXPECT_FALSE(windowed.contains("same_length"));
  const CommandResult shown = run({"eval", "run", "--same-length", "--memory", "48", "--clamp", "40"});
  EXPECT_NE(shown.out.find(", memory 48, clamp 40, same length: "), std::string::npos) << shown.out << shown.err;
  EXPECT_EQ(kept_evaluations(dir / "run").back().memory, (EvaluatedMemory{48, 40, {}, true}));
}

TEST_F(Remembering, WhatAMemoryCannotBeIsRefused) {
  expect_refused({"eval", "run", "--min-context", "58"},
                 "--min-context is 58, but through what it remembers this model looks back 57 bytes at most; choose at "
                 "most that many");
  expect_refused({"eval", "run", "--memory", "0", "--min-context", "32"},
                 "--min-context is 32, but must be below the context of 32");
  EXPECT_EQ(run({"eval", "run", "--memory", "72", "--min-context", "58"}).exit_code, 0);
  EXPECT_EQ(run({"eval", "run", "--clamp", "0"}).exit_code, 2);
  expect_refused({"eval", "run", "--clamp", "1e9"}, "--clamp is 1000000000, but must be at most 8388608 positions");
  EXPECT_EQ(run({"eval", "run", "--compressed", "0"}).exit_code, 2);
  expect_refused({"eval", "run", "--compressed", "8"},
                 "--compressed cannot be used with this model, which has no compressed memory "
                 "(model.memory.compressed); leave it out");
}

// Settings that the other run lacks cannot be set to what they were there.
TEST_F(Remembering, ARunWithoutSpansNamesThoseToRemove) {
  expect_refused({"train", "r.yaml", "--run", "spans", "--from", "run", "--set", "model.distance.span={longest: 20}",
                  "--set", "model.distance.table=none"},
                 "--from run: the weights do not fit the recipe's model: layers.0.attention.span (2) is missing there; "
                 "set model.distance.table: sinusoid (it is none); remove model.distance.span.initial (it is 0), "
                 "model.distance.span.longest (it is 20), model.distance.span.loss (it is 0), model.distance.span.ramp "
                 "(it is 32)");
}

// A position has the same random number and the same past, however many follow it.
TEST_F(Remembering, SamplesMayBeLongerThanTheContext) {
  expect_refused_with({"sample", "run", "--length", "3e9"}, "--length: Value 3000000000 not in range");
  expect_refused(
      {"sample", "run", "--prompt-text", std::string(32, 'x')},
      "--prompt-text: the prompt must be shorter than the 32 bytes of a sample; shorten it, or raise --length");
  const CommandResult shorter = run({"sample", "run", "--quiet", "--seed", "3"});
  const CommandResult longer = run({"sample", "run", "--quiet", "--seed", "3", "--length", "150"});
  ASSERT_EQ(longer.exit_code, 0) << longer.err;
  EXPECT_EQ(shorter.out.size(), 32U);
  ASSERT_EQ(longer.out.size(), 150U);
  EXPECT_EQ(longer.out.substr(0, 32), shorter.out);
  // And whatever was given of it.
  write_text(dir / "prompt", longer.out.substr(0, 100));
  EXPECT_EQ(run({"sample", "run", "--quiet", "--seed", "3", "--length", "150", "--prompt", "prompt"}).out, longer.out);
}

TEST_F(Remembering, OnlyAModelThatRemembersDrawsMoreThanItsContext) {
  write_text(dir / "windows.yaml", R"(name: windows
data: {kind: bytes, path: x.h5, context: 32}
model: {kind: decoder, layers: 1, width: 16, heads: 2, positions: none, distance: {table: sinusoid, window: 8}}
train: {steps: 1, global_batch: 2, lr: 1.0e-3, warmup: 1}
)");
  const CommandResult trained = run({"train", "windows.yaml", "--run", "windows"});
  ASSERT_EQ(trained.exit_code, 0) << trained.err;
  EXPECT_EQ(run({"sample", "windows", "--quiet"}).out.size(), 32U);
  EXPECT_EQ(run({"sample", "windows", "--quiet", "--length", "70"}).out.size(), 70U);  // a window slides
}

// The survey's recipe of the Compressive Transformer at toy size: a segment that has left the memory is four rows.
TEST_F(Remembering, ACompressedMemoryContinuesAnyPrompt) {
  std::vector<std::string> train = {"train", LONGSTRIDE_SOURCE_DIR "/recipes/survey/text-8min-compressive.yaml",
                                    "--run", "compressive"};
  for (const char* set : {"data.path=x.h5", "data.context=32", "model.layers=2", "model.width=16", "model.heads=2",
                          "model.memory.length=32", "model.memory.compressed=16", "model.memory.rate=8",
                          "train.steps=6", "train.global_batch=2", "train.warmup=1", "train.sample_every=6"})
    train.insert(train.end(), {"--set", set});
  const CommandResult trained = run(train);
  ASSERT_EQ(trained.exit_code, 0) << trained.err;
  EXPECT_EQ(text_of(dir / "compressive/samples/step-00000006/sample-000.txt").size(), 32U);
  const std::vector<std::string> sample = {"sample", "compressive", "--quiet", "--seed", "3", "--length", "250"};
  const CommandResult drawn = run(sample);
  ASSERT_EQ(drawn.exit_code, 0) << drawn.err;
  ASSERT_EQ(drawn.out.size(), 250U);
  for (const std::size_t given : {7U, 32U, 200U}) {
    write_text(dir / "prompt", drawn.out.substr(0, given));
    std::vector<std::string> prompted = sample;
    prompted.insert(prompted.end(), {"--prompt", "prompt"});
    EXPECT_EQ(run(prompted).out, drawn.out) << given;
  }
  const Json own = Json::parse(run({"eval", "compressive", "--json"}).out),
             more = Json::parse(run({"eval", "compressive", "--compressed", "24", "--json"}).out);
  EXPECT_EQ(own.at("compressed"), 16);
  EXPECT_EQ(more.at("compressed"), 24);
  EXPECT_NE(more.at("bits_per_byte"), own.at("bits_per_byte"));
  EXPECT_NE(run({"eval", "compressive", "--compressed", "24"}).out.find(", memory 32, compressed 24: "),
            std::string::npos);
  const std::vector<KeptEvaluation> kept = kept_evaluations(dir / "compressive");
  ASSERT_EQ(kept.size(), 2U);
  EXPECT_EQ(kept[1].memory, (EvaluatedMemory{32, {}, 24}));
}

}  // namespace
}  // namespace longstride::testing::scores_and_samples_test
