// An encoder through the commands: training, figures, hidden rows, answers, leaks, and a new head on trained weights.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <sstream>

#include "tests/support/text_run.h"

namespace longstride::testing {
namespace {

using Json = nlohmann::json;

std::string encoder_recipe(const std::string& objective, int context = 64) {
  return fmt::format(R"(name: small
data: {{kind: bytes, path: x.h5, context: {}}}
objective: {{{}}}
model: {{kind: encoder, layers: 2, width: 16, heads: 2, norm: post, activation: gelu, embedding_norm: true, attention: {{parts: [local], window: 9}}}}
train: {{steps: 40, global_batch: 8, lr: 1.0e-2, warmup: 1, log_every: 1}}
)",
                     context, objective);
}

class EncoderRun : public TextRun {
 protected:
  EncoderRun() : TextRun(encoder_recipe("kind: masked, share: 0.3")) {}

  std::vector<Json> lines_of(const Arguments& arguments) const {
    std::vector<Json> out;
    std::istringstream lines(run_well(arguments).out);
    for (std::string line; std::getline(lines, line);) out.push_back(Json::parse(line));
    return out;
  }
};

TEST_F(EncoderRun, MaskedBitsFallAndEvaluationsTellTheAccuracy) {
  std::istringstream lines(text("run/metrics.jsonl"));
  std::vector<double> bits;
  for (std::string line; std::getline(lines, line);)
    if (const Json step = Json::parse(line); step.contains("lr")) bits.push_back(step.at("bits_per_masked_byte"));
  ASSERT_EQ(bits.size(), 40U);
  EXPECT_LT(bits.back(), bits.front() - 2);
  const Json scored = Json::parse(run_well({"eval", "run", "--json"}).out);
  EXPECT_GT(scored.at("accuracy").get<double>(), 0);
  EXPECT_LE(scored.at("accuracy").get<double>(), 1);
  EXPECT_GT(scored.at("bits_per_masked_byte").get<double>(), 0);
}

TEST_F(EncoderRun, HiddenRowsAreOnePerByteAndFollowBothSides) {
  run_well({"encode", "run", "--input", "text.bin", "--output", "h.npy"});
  const std::string rows = text("h.npy");
  EXPECT_NE(rows.find("'shape': (4000, 16)"), std::string::npos);
  write_text(dir / "changed.bin", "A" + letters(4000).substr(1));
  run_well({"encode", "run", "--input", "changed.bin", "--output", "c.npy"});
  const std::string other = text("c.npy");
  ASSERT_EQ(rows.size(), other.size());
  const std::size_t begin = rows.size() - std::size_t{4000} * 16 * 4, window = 64 * 16 * 4;
  EXPECT_NE(rows.substr(begin, 64), other.substr(begin, 64));
  EXPECT_EQ(rows.substr(begin + window), other.substr(begin + window)) << "other windows";
}

TEST_F(EncoderRun, PredictionsAreThoseOfTheEvaluationOrOfHiddenBytes) {
  write_text(dir / "short.txt", letters(64));
  const std::vector<Json> drawn = lines_of({"predict", "run", "--input", "short.txt"});
  ASSERT_GT(drawn.size(), 5U);
  for (const Json& answer : drawn) {
    EXPECT_EQ(answer.at("byte").get<int>(), letters(64)[answer.at("position").get<std::size_t>()]);
    EXPECT_GT(answer.at("probability").get<double>(), 0);
  }
  write_text(dir / "masked.txt", "abc[?]fg[?]");
  const std::vector<Json> hidden = lines_of({"predict", "run", "--input", "masked.txt", "--mask", "[?]"});
  ASSERT_EQ(hidden.size(), 2U);
  EXPECT_EQ(hidden[0].at("position"), 3);
  EXPECT_EQ(hidden[1].at("position"), 6);
  EXPECT_FALSE(hidden[0].contains("byte"));
}

TEST_F(EncoderRun, NothingThatIsHiddenLeaks) {
  const Json leak = Json::parse(run_well({"eval", "run", "--leak", "--json"}).out);
  EXPECT_EQ(leak.at("largest_leak"), 0);
  EXPECT_GT(leak.at("positions").get<int>(), 10);
}

TEST_F(EncoderRun, ANewHeadAndMorePositionsBeginWithTheWeightsOfTheRun) {
  write_text(dir / "long.yaml", encoder_recipe("kind: masked", 128));
  run_well({"train", "long.yaml", "--run", "long", "--from", "run", "--repeat", "embedding.position.0", "--set",
            "train.steps=1", "--set", "train.lr=1.0e-9"});
  const double before = Json::parse(run_well({"eval", "run", "--json"}).out).at("loss"),
               after = Json::parse(run_well({"eval", "long", "--json"}).out).at("loss");
  EXPECT_NEAR(after, before, 0.5);
  write_text(dir / "spans.yaml", encoder_recipe("kind: masked, unit: span, length: 3"));
  const CommandResult begun =
      run_well({"train", "spans.yaml", "--run", "spans", "--from", "run", "--new", "masked", "--set", "train.steps=1"});
  EXPECT_EQ(begun.err.find("left out"), std::string::npos);
}

TEST_F(EncoderRun, MistakesAreRefusedInASentence) {
  expect_refused({"sample", "run", "--count", "1"},
                 "this model cannot generate sequences; use `longstride predict` or `longstride encode`");
  expect_refused_with({"plan", "r.yaml", "--set", "objective.share=1"}, "must be a number above 0 and below 1");
  expect_refused_with({"plan", "r.yaml", "--set", "objective.mask=0.9"}, "must add up to 1");
  expect_refused_with({"plan", "r.yaml", "--set", "objective.length=3"}, "only unit span has a length; remove it");
  expect_refused_with({"plan", "r.yaml", "--set", "model.attention.direction=past"},
                      "this model reads every position in both directions; remove it");
  expect_refused_with({"plan", "r.yaml", "--set", "model.attention.window=8"}, "direction both needs an odd number");
  expect_refused({"plan", "r.yaml", "--set", "model.attention={parts: [shifted_block], blocks: 8192, shifts: {0: 2}}"},
                 "--set model.attention={parts: [shifted_block], blocks: 8192, shifts: {0: 2}}: model.attention.blocks "
                 "is 8192, but must be 0 or a positive whole number, at most 4096");
  expect_refused_with({"train", "r.yaml", "--run", "x", "--set", "objective.unit=group"}, "prepare it with --groups");
  expect_refused_with({"train", "r.yaml", "--run", "x", "--from", "run", "--new", "head"},
                      "its components are embedding, layers, masked");
  expect_refused_with({"predict", "run", "--input", "text.bin", "--mask", "[?]"}, "does not have '[?]'");
  expect_refused_with({"predict", "run", "--input", "none.txt"}, "is no file");
  expect_refused_with({"plan", "r.yaml", "--set", "objective={kind: labels, labels: 0}"}, "a whole number from 1 to");
  expect_refused_with({"encode", "run", "--input", "text.bin", "--output", "h.txt"}, ".npy");
  write_text(dir / "classes.yaml", encoder_recipe("kind: classes, classes: 2"));
  expect_refused_with({"train", "classes.yaml", "--run", "x"}, "but objective.kind classes reads 1");
}

TEST_F(EncoderRun, WindowsOfNothingToAskAreRefused) {
  write_text(dir / "dots.bin", std::string(2000, '.'));
  run_well({"prepare", "bytes", "--input", "dots.bin", "--split", "0.5,0.25,0.25", "--output", "dots.h5"});
  write_text(dir / "words.yaml", encoder_recipe("kind: masked, unit: word"));
  const CommandResult trained =
      run_well({"train", "words.yaml", "--run", "words", "--set", "data.path=dots.h5", "--set", "train.steps=1"});
  EXPECT_NE(trained.err.find("valid has no score"), std::string::npos) << trained.err;
  expect_refused_with({"eval", "words"}, "has anything that the run's objective, masked, asks about");
  expect_refused_with({"eval", "words", "--leak"}, "no window has a hidden byte whose score could leak");
}

TEST_F(EncoderRun, LabelsAreThoseOfTheirNames) {
  std::string lines, table;
  for (int i = 1; i <= 40; ++i) {
    lines += letters(48) + "\n";
    table += fmt::format("{}\t{}\n", i, i % 2 == 0 ? "x" : "y");
  }
  write_text(dir / "lines.txt", lines);
  write_text(dir / "labels.tsv", table);
  for (const std::string names : {"x,y", "y,x"})
    run_well({"prepare", "bytes", "--input", "lines.txt", "--documents", "lines", "--labels", "labels.tsv", "--classes",
              names, "--split", "0.5,0.25,0.25", "--output", names + ".h5"});
  const std::string documents = "data.documents=rows";
  write_text(dir / "classes.yaml", encoder_recipe("kind: classes, classes: 2"));
  run_well({"train", "classes.yaml", "--run", "named", "--set", "data.path=x,y.h5", "--set", documents, "--set",
            "train.steps=1"});
  run_well({"eval", "named"});
  expect_refused_with({"eval", "named", "--data", "y,x.h5"}, "its labels have other names, or another order");
  expect_refused_with({"eval", "named", "--leak"}, "whole windows or groups");
  expect_refused_with({"train", "classes.yaml", "--run", "spans", "--set", "data.path=x,y.h5", "--set", documents,
                       "--set", "objective={kind: spans}"},
                      "its labels have names, such as 'x', but those of objective.kind spans");
}

}  // namespace
}  // namespace longstride::testing
