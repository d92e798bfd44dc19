// A folder in the layout of Hugging Face: export --hf writes it, and the commands that read a run read it.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstring>
#include <nlohmann/json.hpp>
#include <random>

#include "framework/core/errors.h"
#include "launch/report/run_facts.h"
#include "tests/support/text_run.h"

namespace longstride::testing::pretrained_test {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

class Pretrained : public TextRun {
 protected:
  Pretrained()
      : TextRun(text_recipe(1, "steps: 20, global_batch: 4, lr: 1.0e-2, warmup: 1, ema: 0.5"),
                {{"train", "r.yaml", "--run", "run"}, {"export", "run", "--hf", "made/hf"}}) {}

  Json json(const Arguments& arguments) const { return Json::parse(run_well(arguments).out); }
  void change_config(const std::function<void(Json&)>& change) const {
    Json config = Json::parse(text("made/hf/config.json"));
    change(config);
    write_text(dir / "made/hf/config.json", config.dump());
  }
  // A file of weights with this header.
  void write_weights(const std::string& header, const std::string& data, std::uint64_t claimed = 0) const {
    std::string bytes(8, '\0');
    const std::uint64_t length = claimed > 0 ? claimed : header.size();
    std::memcpy(bytes.data(), &length, sizeof length);
    write_text(dir / "made/hf/model.safetensors", bytes + header + data);
  }
  void expect_no_command_reads_it(const std::string& part) const {
    for (const Arguments& command :
         {Arguments{"eval", "made/hf", "--data", "x.h5"}, {"sample", "made/hf"}, {"report", "made/hf"}})
      expect_refused_with(command, part);
  }
};

TEST_F(Pretrained, AFolderHasTheFigureAndTheSamplesOfItsRun) {
  const Json run = json({"eval", "run", "--json"}), folder = json({"eval", "made/hf", "--data", "x.h5", "--json"});
  EXPECT_EQ(folder.at("bits_per_byte"), run.at("bits_per_byte"));
  EXPECT_EQ(folder.at("step"), 20);
  run_well({"sample", "run", "--output", "a", "--count", "2"});
  run_well({"sample", "made/hf", "--output", "b", "--count", "2"});
  EXPECT_EQ(text("b/sample-001.txt"), text("a/sample-001.txt"));
}

TEST_F(Pretrained, AFolderHoldsItsCodeAndTokenizerAndNoPathOfTheMachine) {
  for (const char* name : {"modeling_longstride.py", "settings.py", "tokenizer.json", "tokenizer_config.json"})
    EXPECT_GT(text(fmt::format("made/hf/{}", name)).size(), 100U) << name;
  const Json config = Json::parse(text("made/hf/config.json"));
  EXPECT_EQ(config.at("origin"),
            (Json{{"run", "run"}, {"step", 20}, {"weights", "average"}, {"data", "bytes"}, {"other_weights", "last"}}));
  EXPECT_EQ(config.at("settings").at("context"), 64);
  EXPECT_FALSE(fs::exists(dir / "made/.tmp"));
  EXPECT_EQ(std::distance(fs::directory_iterator(dir / "made"), fs::directory_iterator()), 1);
}

TEST_F(Pretrained, AReportHasWhatTrainerHasLogged) {
  write_text(dir / "made/hf/trainer_state.json",
             R"({"global_step": 7, "log_history": [{"loss": 3.5, "learning_rate": 0.001, "grad_norm": 1.5, "step": 5},
                 {"eval_loss": 3.0, "step": 7}, 4]})");
  run_well({"eval", "made/hf", "--data", "x.h5"});
  run_well({"report", "made/hf", "--output", "page.html"});
  const std::string page = text("page.html");
  EXPECT_NE(page.find(fmt::format("<b>{:.3f}</b>", 3.0 / std::log(2.0))), std::string::npos);
  EXPECT_NE(page.find("<b>27</b><span>steps"), std::string::npos);
  EXPECT_NE(page.find("<td>test</td>"), std::string::npos);
  EXPECT_EQ(page.find("weight decay"), std::string::npos);  // settings of Longstride's training
  run_well({"report", "run", "made/hf", "--output", "both.html"});
  EXPECT_EQ(text("both.html").find("<td>train.lr</td>"), std::string::npos);
  expect_refused_with({"report", "made/hf", "--by", "bytes", "--output", "no.html"},
                      "--by is bytes, but made/hf says no more of its training than steps");
  write_text(dir / "made/hf/trainer_state.json", R"({"log_history": 3})");
  expect_refused_with({"report", "made/hf", "--output", "no.html"}, "must be JSON with a list, 'log_history'");
}

TEST_F(Pretrained, AFolderThatIsNotOursIsRefused) {
  change_config([](Json& config) { config["model_type"] = "gpt2"; });
  expect_no_command_reads_it("config.json: is not of a model that Longstride wrote");
  change_config([](Json& config) {
    config["model_type"] = "longstride";
    config["auto_map"]["AutoModelForCausalLM"] = "modeling_other.OtherModel";
  });
  expect_no_command_reads_it("config.json: is not of a model that Longstride wrote");
  write_text(dir / "made/hf/config.json", "[" + std::string(100000, '['));
  expect_no_command_reads_it("config.json: is not a JSON object");
}

TEST_F(Pretrained, SettingsThatLieAreRefused) {
  const std::string before = text("made/hf/config.json");
  const auto expect = [&](const std::function<void(Json&)>& change, const std::string& part) {
    write_text(dir / "made/hf/config.json", before);
    change_config(change);
    expect_no_command_reads_it(part);
  };
  expect([](Json& c) { c["settings"]["width"] = 32; }, "the weights are not those of config.json: ");
  expect([](Json& c) { c["settings"]["layers"] = 2; }, "is missing there and ");
  expect([](Json& c) { c["settings"]["width"] = 0; }, "model.width is 0");
  expect([](Json& c) { c["settings"]["magic"] = 1; }, "unknown key 'magic' in model");
  expect([](Json& c) { c["settings"] = 3; }, "config.json");
  expect([](Json& c) { c.erase("settings"); }, "config.json");
  expect([](Json& c) { c["settings"]["context"] = "long"; }, "context");
  expect([](Json& c) { c["settings"]["picture"] = {4, 4, 4}; }, "settings.picture is [4,4,4]");
  expect([](Json& c) { c["origin"]["data"] = "music"; }, "data.kind is 'music'");
}

TEST_F(Pretrained, WeightsThatAreNotWholeAreRefused) {
  const std::string whole = text("made/hf/model.safetensors");
  write_text(dir / "made/hf/model.safetensors", whole.substr(0, whole.size() - 4));
  expect_no_command_reads_it("the file is truncated or damaged");
  write_weights("{}", "", std::uint64_t{1} << 62);
  expect_no_command_reads_it("the header claims 4611686018427387904 bytes");
  write_weights(R"({"model.a":{"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,4]}})", "1234");
  expect_no_command_reads_it("larger than the file");
  write_text(dir / "made/hf/model.safetensors", "\x01garbage without an end");
  expect_no_command_reads_it("the header claims");
  write_weights(R"({"model.a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})", "1234");
  expect_no_command_reads_it("is missing there and ");
  std::string infinite = whole;
  std::memset(infinite.data() + infinite.size() - 4, 0xff, 4);
  write_text(dir / "made/hf/model.safetensors", infinite);
  expect_no_command_reads_it("are not finite, so the model is unusable");
  fs::remove(dir / "made/hf/model.safetensors");
  expect_no_command_reads_it("model.safetensors");
}

// Bytes that a file of some kind has often.
char drawn_byte(std::mt19937& draws) {
  constexpr std::string_view likely = "{}[]\",:0123456789.-enull";
  return draws() % 4 > 0 ? likely[draws() % likely.size()] : static_cast<char>(draws());
}

TEST_F(Pretrained, DamagedFoldersAreReadOrRefused) {
  const std::string folder = dir / "made/hf";
  std::mt19937 draws(1);
  int refused = 0;
  constexpr int each = 150;
  for (const char* name : {"config.json", "model.safetensors", "trainer_state.json"}) {
    write_text(dir / "made/hf/trainer_state.json", R"({"global_step": 7, "log_history": [{"loss": 3.5, "step": 5}]})");
    const std::string whole = text(fmt::format("made/hf/{}", name));
    for (int i = 0; i < each; ++i) {
      std::string damaged = whole;
      const std::size_t most = std::min<std::size_t>(damaged.size(), 2000);  // headers come first
      for (std::uint32_t changes = 1 + draws() % 3; changes > 0; --changes) damaged[draws() % most] = drawn_byte(draws);
      if (draws() % 8 == 0) damaged.resize(draws() % damaged.size());
      write_text(dir / fmt::format("made/hf/{}", name), damaged);
      try {
        read_run(folder, false);
      } catch (const UserError& error) {
        ++refused;
        EXPECT_EQ(std::string_view(error.what()).find('\0'), std::string_view::npos);
      }
    }
    write_text(dir / fmt::format("made/hf/{}", name), whole);
  }
  EXPECT_GT(refused, each);
  EXPECT_NO_THROW(read_run(folder, false));
}

TEST_F(Pretrained, WhatAFolderHasNotIsRefused) {
  expect_refused(
      {"eval", "made/hf"},
      "the folder of this model does not say which data it was trained on; name a prepared dataset with --data");
  expect_refused({"sample", "made/hf", "--complete", "test"},
                 "the folder of this model does not say which data it was trained on; leave --complete out");
  expect_refused(
      {"sample", "made/hf", "--checkpoint", "best"},
      "made/hf: is a folder in the layout of Hugging Face, which holds one set of weights; leave out --checkpoint");
  expect_refused(
      {"sample", "made/hf", "--weights", "last"},
      "made/hf: is a folder in the layout of Hugging Face, which holds one set of weights; leave out --weights");
}

TEST_F(Pretrained, ExportRefusesWhatItCannotWrite) {
  expect_refused({"export", "run", "--hf", "made/hf"},
                 "made/hf: exists already and is not an empty folder; choose another with --hf, or remove it");
  expect_refused({"export", "r.yaml", "--hf", "new"},
                 "--hf is new, but r.yaml is a recipe, which has no weights; name a run");
  expect_refused({"export", "run"}, "export needs --output, the folder to write to, or --hf; add one of them");
  expect_refused_with({"export", "run", "--hf", "new", "--steps", "2"}, "--hf");
  EXPECT_FALSE(fs::exists(dir / "new"));
}

class Inexpressible : public TextRun {
 protected:
  Inexpressible()
      : TextRun(R"(name: mixed
data: {kind: bytes, path: x.h5, context: 64}
model:
  kind: decoder
  layers: 1
  width: 16
  heads: 2
  positions: none
  mixers: [{kind: scan, form: gated, decay: head}]
train: {steps: 1, global_batch: 2, lr: 1.0e-3, warmup: 1}
)",
                {{"train", "r.yaml", "--run", "run"}}) {}
};

TEST_F(Inexpressible, ARunThatPythonCannotComputeIsRefused) {
  expect_refused(
      {"export", "run", "--hf", "new"},
      "run: cannot be written for transformers: lists of mixers (model.mixers) run in the longstride command "
      "alone; `longstride export --output` writes its weights");
  EXPECT_FALSE(fs::exists(dir / "new"));
}

}  // namespace
}  // namespace longstride::testing::pretrained_test
