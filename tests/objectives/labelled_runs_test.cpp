// Objectives that labels answer, through the commands, on data with a planted answer: spans, classes of sentences, and
// types of tokens.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <random>
#include <sstream>

#include "framework/core/files/safetensors.h"
#include "tests/datasets/foreign.h"
#include "tests/support/command.h"

namespace longstride::testing::labelled_runs_test {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* recipe = R"(name: labelled
data: {kind: bytes, path: x.h5, context: 48, documents: rows}
objective: {kind: spans}
model: {kind: encoder, layers: 2, width: 16, heads: 2, norm: post, activation: gelu, embedding_norm: true, attention: {integration: merged, parts: [local], window: 9}}
train: {steps: 320, global_batch: 16, lr: 1.0e-2, warmup: 4, log_every: 1, checkpoint_every: 160, keep: 5}
)";

struct Draw {
  std::mt19937 engine;
  unsigned operator()(unsigned below) { return static_cast<unsigned>(engine() % below); }
};

// Documents of letters in sentences, which end with a stop or, in class 1, with an exclamation mark. The answer of most
// documents is a run of digits.
struct Documents {
  Bytes text;
  std::vector<std::int64_t> ends{0}, groups{0};
  std::vector<std::uint32_t> spans;
  std::vector<std::uint16_t> marks, turns;  // a class of every sentence: by its mark; by its place in the document

  Documents(int count, unsigned seed) {
    Draw draw{std::mt19937(seed)};
    for (int d = 0; d < count; ++d) {
      const auto first = static_cast<std::int64_t>(text.size());
      std::uint32_t begin = 0, end = 0;
      const unsigned sentences = 2 + draw(3), with_answer = draw(4) == 0 ? sentences : draw(sentences);
      for (unsigned s = 0; s < sentences; ++s) {
        letters(draw, 2 + draw(4));
        if (s == with_answer) {
          begin = static_cast<std::uint32_t>(std::ssize(text) - first);
          for (unsigned digits = 1 + draw(3); digits > 0; --digits)
            text.push_back(static_cast<std::uint8_t>('0' + draw(10)));
          end = static_cast<std::uint32_t>(std::ssize(text) - first);
          letters(draw, 2);
        }
        marks.push_back(static_cast<std::uint16_t>(draw(2)));
        turns.push_back(static_cast<std::uint16_t>(s % 2));
        text.push_back(marks.back() != 0 ? '!' : '.');
        groups.push_back(std::ssize(text));
      }
      spans.insert(spans.end(), {begin, end});
      ends.push_back(std::ssize(text));
    }
  }
  void letters(Draw& draw, unsigned count) {
    for (unsigned i = 0; i < count; ++i) text.push_back(static_cast<std::uint8_t>('a' + draw(26)));
  }
};

template <class T>
Bytes raw(const std::vector<T>& values) {
  Bytes bytes(values.size() * sizeof(T));
  std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}

void write_data(const std::string& path, bool by_turns) {
  Foreign file(path);
  file.kind("bytes");
  unsigned seed = 1;
  for (const std::string split : split_names) {
    const Documents made(split == "train" ? 400 : 60, seed++);
    const auto add = [&](const std::string& name, const std::vector<hsize_t>& shape, const Bytes& bytes, hid_t type) {
      file.array((split + name).c_str(), shape, bytes, H5P_DEFAULT, type);
    };
    const auto count = [](const auto& values) { return static_cast<hsize_t>(values.size()); };
    const std::vector<std::uint16_t>& classes = by_turns ? made.turns : made.marks;
    add("", {count(made.text)}, made.text, H5T_STD_U8LE);
    add("_boundaries", {count(made.ends)}, raw(made.ends), H5T_STD_I64LE);
    add("_groups", {count(made.groups)}, raw(made.groups), H5T_STD_I64LE);
    add("_labels", {count(made.spans) / 2, 2}, raw(made.spans), H5T_STD_U32LE);
    add("_group_labels", {count(classes)}, raw(classes), H5T_STD_U16LE);
  }
}

class LabelledRuns : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    dir = new TemporaryDirectory;
    write_data(*dir / "x.h5", false);
    write_data(*dir / "turns.h5", true);
    write_text(*dir / "r.yaml", recipe);
    good({"train", "r.yaml", "--run", "spans"});
    good({"train", "r.yaml", "--run", "sentences", "--set", "objective={kind: sentences}"});
  }
  static void TearDownTestSuite() { delete dir; }

  static CommandResult good(const std::vector<std::string>& arguments, int ranks = 1) {
    const CommandResult result = run_command(arguments, dir->path(), 120, ranks);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return result;
  }
  static void refused(const std::vector<std::string>& arguments, const std::string& part) {
    const CommandResult result = run_command(arguments, dir->path());
    EXPECT_EQ(result.exit_code, 2);
    EXPECT_NE(result.err.find(part), std::string::npos) << result.err;
  }
  static Json scored(const std::string& run) { return Json::parse(good({"eval", run, "--json"}).out); }
  static std::vector<Json> lines_with(const std::string& of, const char* key) {
    std::vector<Json> found;
    std::istringstream lines(text_of(*dir / (of + "/metrics.jsonl")));
    for (std::string line; std::getline(lines, line);)
      if (Json parsed = Json::parse(line); parsed.contains(key)) found.push_back(std::move(parsed));
    return found;
  }
  static std::vector<Json> answers(const std::vector<std::string>& arguments) {
    std::vector<Json> found;
    std::istringstream lines(good(arguments).out);
    for (std::string line; std::getline(lines, line);) found.push_back(Json::parse(line));
    return found;
  }

  using Values = std::map<std::string, std::vector<float>>;
  static Values weights_of(const std::string& run, int step) {
    const SafetensorsReader file(*dir / fmt::format("{}/checkpoints/step-{:08}/model.safetensors", run, step));
    Values out;
    for (const TensorEntry& entry : file.entries()) {
      std::vector<float>& values = out[entry.name];
      values.resize(static_cast<std::size_t>(entry.shape.count()));
      file.read(entry.name, Tensor(values.data(), Dtype::f32, entry.shape));
    }
    return out;
  }

  static TemporaryDirectory* dir;
};
TemporaryDirectory* LabelledRuns::dir = nullptr;

TEST_F(LabelledRuns, FindThePlantedSpan) {
  const Json found = scored("spans");
  EXPECT_GT(found.at("f1").get<double>(), 0.9);
  EXPECT_GT(found.at("exact_match").get<double>(), 0.8);
  EXPECT_LE(found.at("exact_match").get<double>(), found.at("f1").get<double>());
  EXPECT_LT(found.at("loss").get<double>(), 0.5);
  EXPECT_GT(lines_with("spans", "lr").front().at("loss").get<double>(), 2);  // 48 positions
}

TEST_F(LabelledRuns, FindThePlantedClassOfSentences) {
  EXPECT_GT(scored("sentences").at("accuracy").get<double>(), 0.97);
}

// Without types nothing tells the first sentence from the second.
TEST_F(LabelledRuns, LearnFromTypesWhichTurnASentenceHas) {
  for (const char* types : {"none", "groups"})
    good({"train", "r.yaml", "--run", types, "--set", "objective={kind: sentences}", "--set", "data.path=turns.h5",
          "--set", "model.positions=none", "--set", std::string("model.types=") + types});
  EXPECT_GT(scored("groups").at("accuracy").get<double>(), 0.97);
  EXPECT_LT(scored("none").at("accuracy").get<double>(), 0.9);
  const Json used = lines_with("groups", "used_bytes").back();
  EXPECT_EQ(used.at("used_bytes"), used.at("planned_bytes"));
  good({"encode", "groups", "--input", "r.yaml", "--output", "h.npy", "--groups", "paragraphs"});
}

// Validation reads documents, groups and labels, as `eval` does.
TEST_F(LabelledRuns, AreValidatedWhileTrainingAsByEval) {
  for (const char* of : {"spans", "sentences"}) {
    const std::string run = std::string("validated-") + of;
    good({"train", "r.yaml", "--run", run, "--set", fmt::format("objective={{kind: {}}}", of), "--set", "train.steps=8",
          "--set", "train.evaluate_every=8", "--set", "train.evaluate_windows=1000"});
    const std::vector<Json> validated = lines_with(run, "split");
    ASSERT_FALSE(validated.empty());
    const Json scored = Json::parse(good({"eval", run, "--split", "valid", "--json"}).out);
    for (const char* key : {"loss", of[1] == 'p' ? "f1" : "accuracy"})
      EXPECT_NEAR(validated.back().at(key).get<double>(), scored.at(key).get<double>(), 1e-6) << of << " " << key;
  }
}

TEST_F(LabelledRuns, AnswersAreTheSpanAndTheClassOfEverySentence) {
  write_text(*dir / "span.txt", "abcde.fgh042ij!");
  const std::vector<Json> span = answers({"predict", "spans", "--input", "span.txt"});
  ASSERT_EQ(span.size(), 1U);
  EXPECT_EQ(span[0].at("begin"), 9);
  EXPECT_EQ(span[0].at("end"), 12);
  EXPECT_GT(span[0].at("probability").get<double>(), 0.5);
  write_text(*dir / "none.txt", "abcde.fghij!");
  EXPECT_TRUE(answers({"predict", "spans", "--input", "none.txt"}).at(0).at("begin").is_null());
  write_text(*dir / "sentences.txt", "Abcde. Fghij! Klm.");
  const std::vector<Json> classes = answers({"predict", "sentences", "--input", "sentences.txt"});
  ASSERT_EQ(classes.size(), 3U);
  EXPECT_EQ(classes[0].at("position"), 6);  // the sentence ends with the space
  EXPECT_EQ(classes[1].at("position"), 13);
  EXPECT_EQ(classes[2].at("position"), 17);
  EXPECT_EQ(classes[2].at("class"), 0);
  EXPECT_EQ(classes[2].at("probabilities").size(), 2U);
  EXPECT_EQ(answers({"predict", "sentences", "--input", "sentences.txt", "--groups", "paragraphs"}).size(), 1U);
}

TEST_F(LabelledRuns, ContinueAsTheyBegan) {
  for (const char* of : {"spans", "sentences"}) {
    const std::string stopped = std::string("stopped-") + of;
    std::filesystem::copy(*dir / of, *dir / stopped, std::filesystem::copy_options::recursive);
    std::filesystem::remove_all(*dir / (stopped + "/checkpoints/step-00000320"));
    good({"train", "r.yaml", "--run", stopped, "--resume", "--set", std::string("objective={kind: ") + of + "}"});
    const auto weights = [&](const std::string& run) {
      return text_of(*dir / (run + "/checkpoints/step-00000320/model.safetensors"));
    };
    EXPECT_FALSE(weights(of).empty());
    EXPECT_EQ(weights(of), weights(stopped)) << of;
  }
}

TEST_F(LabelledRuns, HaveTheSameLossesOnRanksAndInMicroBatches) {
  for (const char* of : {"spans", "sentences"}) {
    const std::string two = std::string("two-") + of;
    good({"train", "r.yaml", "--run", two, "--set", std::string("objective={kind: ") + of + "}", "--set",
          "train.micro_batch=2"},
         2);
    const std::vector<Json> one = lines_with(of, "lr"), others = lines_with(two, "lr");
    for (std::size_t i = 0; i < 5; ++i)
      EXPECT_NEAR(others.at(i).at("loss").get<double>(), one.at(i).at("loss").get<double>(), 1e-4) << of << i;
    const Json used = lines_with(of, "used_bytes").back();
    EXPECT_EQ(used.at("used_bytes"), used.at("planned_bytes")) << of;
  }
}

// A run or its file of weights begins another with a new head, projections of global rows, and more positions.
TEST_F(LabelledRuns, BeginOthers) {
  const std::string file = "/checkpoints/step-00000320/model.safetensors";
  for (const std::string of : {"", "file"}) {
    const std::string ending = of.empty() ? "" : file;
    const std::vector<std::string> short_run = {"--set", "train.steps=4", "--set", "train.lr=1.0e-20"};
    const auto begin = [&](const std::string& run, const std::string& from, const std::vector<std::string>& more) {
      std::vector<std::string> all = {"train", "r.yaml", "--run", run + of, "--from", from + ending};
      all.insert(all.end(), more.begin(), more.end());
      all.insert(all.end(), short_run.begin(), short_run.end());
      return good(all);
    };
    const CommandResult begun = begin("new", "sentences", {"--new", "spans"});
    EXPECT_NE((begun.out + begun.err).find("left out"), std::string::npos);
    begin("long", "spans", {"--repeat", "embedding.position.0", "--set", "data.context=96"});
    begin("own", "spans", {"--set", "model.global={first: 1, projections: own}"});
    const Values own = weights_of("own" + of, 4), all = weights_of("spans", 320), longer = weights_of("long" + of, 4);
    const auto expect_equal = [](const std::vector<float>& found, const std::vector<float>& expected) {
      ASSERT_EQ(found.size(), expected.size());
      for (std::size_t i = 0; i < expected.size(); ++i) ASSERT_NEAR(found[i], expected[i], 1e-15) << i;
    };
    for (const char* part : {"weight", "bias"}) {
      const std::string at = "layers.1.attention.";
      std::vector<float> joined = own.at(at + "global_query." + part);
      const std::vector<float>& rest = own.at(at + "global_key_value." + part);
      joined.insert(joined.end(), rest.begin(), rest.end());
      expect_equal(joined, all.at(at + "query_key_value." + part));
    }
    const std::vector<float>& once = all.at("embedding.position.0.weight");
    std::vector<float> twice = once;
    twice.insert(twice.end(), once.begin(), once.end());
    expect_equal(longer.at("embedding.position.0.weight"), twice);
    refused({"train", "r.yaml", "--run", "no", "--from", "sentences" + ending},
            "spans.weight (2, 16) is missing there");
    refused({"train", "r.yaml", "--run", "no", "--from", "sentences" + ending, "--new", "span"},
            "its components are embedding, layers, spans");
  }
}

TEST_F(LabelledRuns, MistakesAreRefusedInASentence) {
  refused({"train", "r.yaml", "--run", "x", "--set", "data.documents=joined"}, "but objective.kind spans reads 2");
  refused({"plan", "r.yaml", "--set", "data.context=65537"}, "must be at most 65536 with objective.kind spans");
  refused({"train", "r.yaml", "--run", "x", "--set", "objective={kind: sentences, classes: 1}"}, "from 2 to 65,536");
  refused({"predict", "spans", "--input", "r.yaml", "--groups", "sentences"}, "reads no groups; leave it out");
  refused({"plan", "r.yaml", "--set", "model.types=parity"}, "must be none or groups");
  write_text(*dir / "plain.txt", std::string(2000, 'a'));
  good({"prepare", "bytes", "--input", "plain.txt", "--documents", "files", "--output", "plain.h5"});
  refused({"train", "r.yaml", "--run", "x", "--set", "data.path=plain.h5"}, "has 0 labels of every sequence");
  refused({"train", "r.yaml", "--run", "x", "--set", "data.path=plain.h5", "--set", "objective={kind: sentences}"},
          "prepare it with --groups");
  refused({"train", "r.yaml", "--run", "x", "--set", "data.path=plain.h5", "--set", "objective={kind: masked}", "--set",
           "model.types=groups"},
          "prepare it with --groups");
}

}  // namespace
}  // namespace longstride::testing::labelled_runs_test
