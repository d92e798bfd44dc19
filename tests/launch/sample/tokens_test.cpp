// Runs on tokens: ids of 16 bits from files, and text through SentencePiece.
#include <nlohmann/json.hpp>

#include "datasets/tokens/text_ids.h"
#include "launch/sample/run_tokens.h"
#include "tests/support/text_run.h"

namespace longstride::testing {
namespace {

using nlohmann::json;

std::string with_data(std::string recipe, const std::string& data) {
  const std::string bytes = "kind: bytes, path: x.h5";
  return recipe.replace(recipe.find(bytes), bytes.size(), data);
}

std::string ids_below(int vocabulary, int count) {
  std::string bytes;
  for (int i = 0; i < count; ++i) {
    const int id = i * i % vocabulary;
    bytes += {static_cast<char>(id & 255), static_cast<char>(id >> 8)};
  }
  return bytes;
}

constexpr const char* few_steps =
    "steps: 2, global_batch: 2, lr: 1.0e-3, warmup: 1, evaluate_every: 2, sample_every: 2, sample_length: 5";

class TokensRun : public TextRun {
 protected:
  TokensRun()
      : TextRun(with_data(text_recipe(1, few_steps), "kind: tokens, vocabulary: 300, path: ids.h5"),
                {{"prepare", "tokens", "--input", "ids.bin", "--vocabulary", "300", "--output", "ids.h5"},
                 {"train", "r.yaml", "--run", "run"}},
                {{"ids.bin", ids_below(300, 4000)}}) {}
};

TEST_F(TokensRun, AreScoredInNatsPerToken) {
  const json out = json::parse(run_well({"eval", "run", "--split", "test", "--json"}).out);
  EXPECT_EQ(out.at("tokens"), 200);
  EXPECT_NEAR(out.at("loss"), std::log(300), 0.5);
  EXPECT_FALSE(out.contains("bits_per_byte"));  // there is no text
  EXPECT_NE(run_well({"eval", "run", "--split", "test"}).out.find("nats per token"), std::string::npos);
  EXPECT_NE(text("run/metrics.jsonl").find("\"loss\""), std::string::npos);
  EXPECT_EQ(text("run/metrics.jsonl").find("bits_per_byte"), std::string::npos);
  run_well({"report", "run", "--output", "report.html"});
  EXPECT_NE(text("report.html").find("loss"), std::string::npos);
}

TEST_F(TokensRun, AreDrawnAndContinuedAsNumbers) {
  EXPECT_FALSE(text("run/samples/step-00000002/sample-000.txt").empty());
  const std::string drawn = run_well({"sample", "run", "--prompt-text", "299 256 7", "--length", "70"}).out;
  EXPECT_TRUE(drawn.starts_with("299 256 7 ")) << drawn;
  EXPECT_EQ(std::count(drawn.begin(), drawn.end(), ' '), 70);
  EXPECT_EQ(run_well({"sample", "run", "--prompt-text", "299 256 7", "--length", "70", "--batch", "1"}).out, drawn);
  expect_refused_with({"sample", "run", "--prompt-text", "300"}, "'300' is no id of a token below 300");
  write_text(dir / "numbers.txt", "1 2 3 299");
  const json encoded =
      json::parse(run_well({"encode", "run", "--input", "numbers.txt", "--output", "e.npy", "--json"}).out);
  EXPECT_EQ(encoded.at("tokens"), 4);
}

TEST_F(TokensRun, AreContinuedFromASplit) {
  const std::string drawn =
      run_well({"sample", "run", "--complete", "test", "--given", "60", "--length", "64", "--count", "1"}).out;
  const std::string split = text("ids.bin").substr(2 * 3800, 2 * 60);
  std::string expected;
  for (std::size_t i = 0; i < split.size(); i += 2)
    expected +=
        std::to_string(static_cast<unsigned char>(split[i]) + 256 * static_cast<unsigned char>(split[i + 1])) + " ";
  EXPECT_TRUE(drawn.starts_with(expected)) << drawn;
}

TEST_F(TokensRun, AreExportedWithoutATokenizer) {
  EXPECT_NE(run_well({"export", "run", "--hf", "hf"}).out.find("no tokenizer, as the run's data has no SentencePiece"),
            std::string::npos);
  EXPECT_TRUE(json::parse(run_well({"export", "run", "--hf", "again", "--json"}).out).at("tokenizer").is_null());
  EXPECT_TRUE(text("hf/modeling_longstride.py").size() > 100);
  for (const auto& file : std::filesystem::directory_iterator(dir / "hf"))
    EXPECT_FALSE(file.path().filename().string().starts_with("token")) << file.path();
  EXPECT_EQ(run_well({"sample", "hf", "--prompt-text", "299 256 7", "--length", "70", "--output", "a"}).exit_code, 0);
  run_well({"sample", "run", "--prompt-text", "299 256 7", "--length", "70", "--output", "b"});
  EXPECT_EQ(text("a/sample-000.txt"), text("b/sample-000.txt"));
}

TEST_F(TokensRun, AreResumedBitForBit) {
  copy_run("run", "again");
  run_well({"train", "r.yaml", "--run", "once", "--set", "train.steps=4", "--set", "train.checkpoint_every=2"});
  run_well({"train", "r.yaml", "--run", "twice", "--set", "train.steps=4", "--set", "train.checkpoint_every=2"});
  EXPECT_EQ(checkpoint_file("once", 4, "model.safetensors"), checkpoint_file("twice", 4, "model.safetensors"));
}

// An adaptive softmax and input: a first choice of 9 ids and 2 clusters, all at first equally likely.
TEST_F(TokensRun, MayHaveAVocabularyInBands) {
  run_well({"train", "r.yaml", "--run", "bands", "--set", "model.adaptive.cutoffs=[9, 100]", "--set",
            "model.adaptive.divide=2"});
  const json out = json::parse(run_well({"eval", "bands", "--split", "test", "--json", "--losses", "l.npy"}).out);
  double expected = 0;
  const std::string split = text("ids.bin").substr(2 * 3800);
  for (std::size_t i = 0; i < split.size(); i += 2) {
    const int id = static_cast<unsigned char>(split[i]) + 256 * static_cast<unsigned char>(split[i + 1]);
    expected += std::log(11) + (id < 9 ? 0 : std::log(id < 100 ? 91 : 200));
  }
  EXPECT_NEAR(out.at("loss"), expected / 200, 0.5);
  const std::string drawn = run_well({"sample", "bands", "--prompt-text", "299 5 70", "--length", "70"}).out;
  EXPECT_TRUE(drawn.starts_with("299 5 70 ")) << drawn;
  EXPECT_EQ(std::count(drawn.begin(), drawn.end(), ' '), 70);
  expect_refused_with({"export", "bands", "--hf", "new"},
                      "adaptive softmax and input (model.adaptive) run in the longstride command alone");
}

TEST_F(TokensRun, RecipesThatCannotBeAreRefused) {
  expect_refused_with({"train", "r.yaml", "--run", "a", "--set", "data.vocabulary=400"},
                      "its tokens have 300 ids, but data.vocabulary is 400");
  expect_refused_with({"plan", "r.yaml", "--set", "data.kind=bytes"}, "only data.kind tokens has one");
  expect_refused_with({"plan", "r.yaml", "--set", "data.vocabulary=65536"}, "from 2 to 65535 ids");
  write_text(dir / "none.yaml", with_data(text_recipe(1, few_steps), "kind: tokens, path: ids.h5"));
  expect_refused_with({"plan", "none.yaml"}, "data.vocabulary is missing; add it: how many ids");
  expect_refused_with({"plan", "r.yaml", "--set", "objective.kind=masked"}, "objective.kind");
  expect_refused_with({"plan", "r.yaml", "--set", "model.kind=encoder"}, "model.kind encoder reads bytes only");
  expect_refused_with({"predict", "run", "--input", "r.yaml"}, "is no id of a token below 300");
}

TEST_F(TokensRun, ArePredictedWithTheLossOfEval) {
  std::string ids = text("ids.bin").substr(2 * 3800), numbers;
  for (std::size_t i = 0; i < ids.size(); i += 2)
    numbers += std::to_string(static_cast<unsigned char>(ids[i]) + 256 * static_cast<unsigned char>(ids[i + 1])) + " ";
  write_text(dir / "numbers.txt", numbers);
  const json answers = json::parse(run_well({"predict", "run", "--input", "numbers.txt", "--json"}).out).at("answers");
  ASSERT_EQ(answers.size(), 200U);
  double bits = 0;
  std::string again;
  for (const json& answer : answers) {
    bits += answer.at("bits").get<double>();
    again += std::to_string(answer.at("token").get<int>()) + " ";
    EXPECT_GE(answer.at("probability").get<double>(), 1.0 / 300);
    EXPECT_FALSE(answer.contains("piece"));
  }
  EXPECT_EQ(again, numbers);
  EXPECT_EQ(answers.at(199).at("position"), 199);
  const json scores = json::parse(run_well({"eval", "run", "--split", "test", "--json"}).out);
  EXPECT_NEAR(bits / 200 * std::log(2), scores.at("loss").get<double>(), 1e-5);
}

TEST_F(TokensRun, AreShownWithWhatIsAttendedTo) {
  const auto picture = [&](const std::string& data, const std::string& query = "40") {
    run_well({"attention", "run", "--layer", "0", "--head", "0", "--query", query, "--data", data});
    return json::parse(text("run/attention/attention.json")).at("pictures").at(0);
  };
  const json before = picture("ids.h5");
  std::string ids = text("ids.bin");
  const auto id = [&](int i) {
    const std::size_t at = 2 * static_cast<std::size_t>(3800 + i);
    return std::to_string(static_cast<unsigned char>(ids[at]) + 256 * static_cast<unsigned char>(ids[at + 1]));
  };
  EXPECT_EQ(before.at("piece"), id(40));
  double above = 1;
  for (const json& key : before.at("strongest")) {
    EXPECT_EQ(key.at("piece"), id(key.at("position")));
    EXPECT_LT(key.at("position"), 40);
    EXPECT_LE(key.at("weight"), above);
    above = key.at("weight");
  }
  EXPECT_EQ(before.at("strongest").size(), 8U);
  const json second = picture("ids.h5", "1").at("strongest");  // beside the start, which is no token
  ASSERT_EQ(second.size(), 1U);
  EXPECT_EQ(second.at(0).at("piece"), id(0));
  ids[2 * (3800 + 39)] ^= 1;  // the last token that the query has read
  write_text(dir / "other.bin", ids);
  run_well({"prepare", "tokens", "--input", "other.bin", "--vocabulary", "300", "--output", "other.h5"});
  EXPECT_NE(picture("other.h5").at("entropy_bits"), before.at("entropy_bits"));
  expect_refused_with({"attention", "run", "--input", "3"}, "'test' has 3 whole sequences of 64 tokens");
}

std::string story(const std::string& thing) {
  std::string text;
  for (int i = 0; i < 4000; ++i) text += (i * i + i / 3) % 5 < 2 ? "the wind " : i % 4 == 0 ? "crosses\n" : thing + " ";
  return text;
}

// A run has its tokenizer, whatever happens to the data.
TEST(TokensOfTextRun, KeepsItsTokenizer) {
  if (!encodes_text()) GTEST_SKIP() << "this build lacks SentencePiece";
  const TemporaryDirectory dir;
  write_text(dir / "text.txt", story("a river"));
  write_text(dir / "r.yaml", with_data(text_recipe(1, few_steps), "kind: tokens, vocabulary: 300, path: t.h5"));
  const auto run = [&](const Arguments& arguments) { return run_command(arguments, dir.path()); };
  ASSERT_EQ(
      run({"prepare", "tokens", "--input", "text.txt", "--train-vocabulary", "300", "--output", "t.h5"}).exit_code, 0);
  ASSERT_EQ(run({"train", "r.yaml", "--run", "run"}).exit_code, 0);
  const json scores = json::parse(run({"eval", "run", "--split", "test", "--json"}).out);
  const json about = json::parse(run({"info", "t.h5", "--json"}).out).at("splits").at("test");
  EXPECT_NEAR(scores.at("bits_per_byte").get<double>(),
              scores.at("loss").get<double>() / std::log(2) * about.at("tokens").get<double>() /
                  about.at("text_bytes").get<double>(),
              1e-9);
  ASSERT_EQ(run({"attention", "run", "--query", "5", "--output", "drawn"}).exit_code, 0);
  const json shown = json::parse(text_of(dir / "drawn/attention.json")).at("pictures").at(0);
  EXPECT_NE(story("a river").find(shown.at("piece").get<std::string>()), std::string::npos);
  EXPECT_FALSE(shown.at("strongest").empty());
  std::filesystem::remove(dir / "t.h5");
  write_text(dir / "short.txt", "the wind\n crosses");
  std::string pieces;
  const json answers = json::parse(run({"predict", "run", "--input", "short.txt", "--json"}).out).at("answers");
  for (const json& answer : answers) {
    pieces += answer.at("piece").get<std::string>();
    EXPECT_TRUE(answer.contains("predicted_piece"));
  }
  EXPECT_EQ(pieces, "the wind\n crosses");
  const std::string drawn = run({"sample", "run", "--prompt-text", "the wind\n crosses", "--length", "30"}).out;
  EXPECT_TRUE(drawn.starts_with("the wind\n crosses")) << drawn;
  EXPECT_NE(text_of(dir / "run/metrics.jsonl").find("bits_per_byte"), std::string::npos);
  EXPECT_EQ(json::parse(run({"export", "run", "--hf", "hf", "--json"}).out).at("tokenizer"), "pieces");
  EXPECT_EQ(text_of(dir / "hf/tokenizer.model"), text_of(dir / "run/tokenizer.model"));
  EXPECT_NE(text_of(dir / "hf/tokenizer_config.json").find("LongstrideTokenizer"), std::string::npos);
  EXPECT_EQ(run({"sample", "hf", "--prompt-text", "the wind\n crosses", "--length", "30"}).out, drawn);
  write_text(dir / "run/tokenizer.model", text_of(dir / "run/tokenizer.model") + "x");
  EXPECT_NE(run({"sample", "run"}).err.find("is not the tokenizer that the run was trained with"), std::string::npos);
}

// A run of text, other text whose 300 ids are others, ids below 300 without a tokenizer, and the run's folder.
class TwoTokenizers : public TextRun {
 protected:
  TwoTokenizers()
      : TextRun(with_data(text_recipe(), "kind: tokens, vocabulary: 300, path: t.h5"),
                !encodes_text() ? std::vector<Arguments>{}
                                : std::vector<Arguments>{{"prepare", "tokens", "--input", "text.txt",
                                                          "--train-vocabulary", "300", "--output", "t.h5"},
                                                         {"prepare", "tokens", "--input", "other.txt",
                                                          "--train-vocabulary", "300", "--output", "other.h5"},
                                                         {"prepare", "tokens", "--input", "ids.bin", "--vocabulary",
                                                          "300", "--output", "ids.h5"},
                                                         {"train", "r.yaml", "--run", "run"},
                                                         {"export", "run", "--hf", "hf"}},
                {{"text.txt", story("a river")}, {"other.txt", story("umbra")}, {"ids.bin", ids_below(300, 4000)}}) {}
  void SetUp() override {
    if (!encodes_text()) GTEST_SKIP() << "this build lacks SentencePiece";
  }
};

TEST_F(TwoTokenizers, ARunIsResumedWithItsOwn) {
  const Arguments resume = {"train",    "r.yaml",           "--run", "run",
                            "--resume", "--resume-changed", "--set", "train.steps=3"};
  const auto with = [&](const char* data) {
    Arguments all = resume;
    all.insert(all.end(), {"--set", std::string("data.path=") + data});
    return all;
  };
  expect_refused_with(with("other.h5"), "so the same ids may mean other text; resume the run in run with data of its");
  expect_refused_with(with("ids.h5"), "ids.h5: its ids are without a tokenizer, but the model was trained on ids of");
  const std::string own = text("hf/tokenizer.model");
  EXPECT_EQ(text("run/tokenizer.model"), own);
  std::filesystem::remove(dir / "run/tokenizer.model");
  expect_refused_with({"sample", "run"}, "run/tokenizer.model: is missing, but the run was trained with a tokenizer");
  run_well(resume);
  EXPECT_EQ(text("run/tokenizer.model"), own);
  write_text(dir / "run/tokenizer.model", own.substr(0, 1000));
  run_well(resume);
  EXPECT_EQ(text("run/tokenizer.model"), own);
}

TEST_F(TwoTokenizers, DataOfTheOtherIsNotScored) {
  run_well({"train", "r.yaml", "--run", "bare", "--set", "data.path=ids.h5"});
  run_well({"export", "bare", "--hf", "bare-hf"});
  for (const char* name : {"run", "hf"}) {
    expect_refused_with({"eval", name, "--data", "other.h5"}, "other.h5: its ids are of tokenizer ");
    expect_refused_with({"eval", name, "--data", "ids.h5"}, "ids.h5: its ids are without a tokenizer, but the model");
    run_well({"eval", name, "--data", "t.h5"});
  }
  for (const char* name : {"bare", "bare-hf"}) {
    expect_refused_with({"eval", name, "--data", "t.h5"}, "but the model was trained on ids without a tokenizer");
    run_well({"eval", name, "--data", "ids.h5"});
  }
}

TEST_F(TwoTokenizers, AFolderKnowsItsOwn) {
  const std::string own = text("hf/tokenizer.model");
  run_well({"train", "r.yaml", "--run", "second", "--set", "data.path=other.h5"});
  for (const std::string& other : {text("second/tokenizer.model"), own.substr(0, 1000), std::string()}) {
    write_text(dir / "hf/tokenizer.model", other);
    for (const char* command : {"sample", "report"})
      expect_refused_with({command, "hf"}, "hf/tokenizer.model: is not the tokenizer that the run was trained with");
    expect_refused_with({"eval", "hf", "--data", "t.h5"}, "is not the tokenizer that the run was trained with");
  }
  std::filesystem::remove(dir / "hf/tokenizer.model");
  expect_refused_with({"sample", "hf"}, "hf/tokenizer.model: is missing");
  expect_refused_with({"eval", "hf", "--data", "other.h5"}, "so the same ids may mean other text");
  run_well({"eval", "hf", "--data", "t.h5"});  // its checksum says that it is the same
  json config = json::parse(text("hf/config.json"));
  config["origin"].erase("tokenizer");  // as written by earlier versions
  write_text(dir / "hf/config.json", config.dump());
  write_text(dir / "hf/tokenizer.model", own);
  expect_refused_with({"eval", "hf", "--data", "other.h5"}, "so the same ids may mean other text");
  write_text(dir / "hf/tokenizer.model", "");
  expect_refused_with({"sample", "hf"}, "hf/tokenizer.model: is no SentencePiece model");
}

TEST_F(TwoTokenizers, ANewRunIsToldOfTheOther) {
  for (const char* from : {"run", "hf"}) {
    const auto warned = [&](const char* data) {
      const CommandResult result = run_well({"train", "r.yaml", "--run", std::string(from) + data, "--from", from,
                                             "--set", std::string("data.path=") + data});
      return result.err.find("so the same ids may mean other text; begin what reads") != std::string::npos;
    };
    EXPECT_FALSE(warned("t.h5"));
    EXPECT_TRUE(warned("other.h5"));
    EXPECT_TRUE(warned("ids.h5"));
  }
}

}  // namespace
}  // namespace longstride::testing
