// train --from: a new run that begins with the weights of another.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <nlohmann/json.hpp>

#include "framework/core/files/safetensors.h"
#include "framework/core/files/sha256.h"
#include "framework/train/checkpoint/checkpoint.h"
#include "launch/report/run_history.h"
#include "tests/support/text_run.h"

namespace longstride::testing::begin_from_test {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

const std::string recipe = text_recipe(1,
                                       "steps: 40, global_batch: 4, lr: 1.0e-2, warmup: 4, checkpoint_every: 20, "
                                       "log_every: 1, evaluate_every: 20, ema: 0.5");
// A learning rate that is lost in the rounding of every weight.
const Arguments idle = {"--set", "train.lr=1.0e-30", "--set", "train.steps=2", "--set", "train.warmup=0"};

// The bytes of all tensors, in the order in which training writes them.
std::string tensors_of(const std::string& safetensors) {
  std::uint64_t header = 0;
  if (safetensors.size() < sizeof(header)) return "";
  std::memcpy(&header, safetensors.data(), sizeof(header));
  return safetensors.substr(sizeof(header) + header);
}

// A run of 40 steps and other data.
class BeginFrom : public TextRun {
 protected:
  BeginFrom() : TextRun(recipe, {{"train", "r.yaml", "--run", "base"}}) {
    write_text(dir / "other.bin", letters(3000, 'A'));
    run_well({"prepare", "bytes", "--input", "other.bin", "--output", "other.h5"});
    fs::create_directories(dir / "empty");
  }

  static Arguments train(const std::string& name, const Arguments& more) {
    Arguments all = {"train", "r.yaml", "--run", name};
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }
  CommandResult train_well(const std::string& name, const Arguments& more, int ranks = 1) const {
    return run_well(train(name, more), ranks);
  }
  static Arguments with_idle(Arguments more) {
    more.insert(more.end(), idle.begin(), idle.end());
    return more;
  }
  // The checksum of a checkpoint's tensors.
  std::string weights(const std::string& name, int step, const std::string& file = "model.safetensors") const {
    const std::string found = tensors_of(checkpoint_file(name, step, file));
    EXPECT_GT(found.size(), 1000U) << name << " " << step << " " << file;
    Sha256 sha;
    sha.update(found.data(), found.size());
    return sha.hex();
  }
  void expect_refused(const Arguments& more, const std::string& sentence) const {
    TextRun::expect_refused(train("refused", more), sentence);
    EXPECT_FALSE(fs::exists(dir / "refused"));
    fs::remove_all(dir / "refused");
  }
  Json evaluated(const std::string& name, const Arguments& more) const {
    Arguments all = {"eval", name, "--json"};
    all.insert(all.end(), more.begin(), more.end());
    return Json::parse(run_well(all).out, nullptr, false);
  }
};
TEST_F(BeginFrom, StepsThatChangeNothingKeepEveryBitOfTheWeightsThatEvalTakes) {
  train_well("same", with_idle({"--from", "base", "--set", "data.path=other.h5"}));
  const std::string average = weights("base", 40, "ema.safetensors");
  EXPECT_NE(average, weights("base", 40));
  EXPECT_EQ(weights("same", 2), average);
  EXPECT_EQ(weights("same", 2, "ema.safetensors"), average);  // the new average begins with the same weights
  const Json before = evaluated("base", {"--data", "other.h5"}), after = evaluated("same", {});
  EXPECT_GT(before.at("loss").get<double>(), 0);
  EXPECT_EQ(after.at("loss"), before.at("loss"));
}

TEST_F(BeginFrom, SeveralRanksBeginWithTheSameBits) {
  train_well("ranks", with_idle({"--from", "base"}), 2);
  EXPECT_EQ(weights("ranks", 2), weights("base", 40, "ema.safetensors"));
  train_well("sharded", with_idle({"--from", "base", "--set", "optimizer.shard=true", "--set", "train.ema=0"}), 2);
  EXPECT_EQ(weights("sharded", 2), weights("base", 40, "ema.safetensors"));
}

TEST_F(BeginFrom, TheCheckpointAndItsWeightsCanBeChosen) {
  train_well("last", with_idle({"--from", "base", "--weights", "last"}));
  EXPECT_EQ(weights("last", 2), weights("base", 40));
  train_well("twenty", with_idle({"--from", "base", "--weights", "last", "--checkpoint", "20"}));
  EXPECT_EQ(weights("twenty", 2), weights("base", 20));
  const int best = static_cast<int>(*best_step(dir / "base", 40));
  train_well("best", with_idle({"--from", "base", "--checkpoint", "best"}));
  EXPECT_EQ(weights("best", 2), weights("base", best, "ema.safetensors"));
}

// The two score differently, so a figure without its weights means little.
TEST_F(BeginFrom, ScoresAndSamplesSayWhichWeightsTheyAreOfAndWhichElseThereAre) {
  const std::string averaged = "step 40, averaged weights (the others: --weights last)";
  const std::string last = "step 40, last weights (the others: --weights average)";
  EXPECT_NE(run({"eval", "base"}).out.find(averaged + ", context 64"), std::string::npos);
  EXPECT_NE(run({"eval", "base", "--weights", "last"}).out.find(last + ", context 64"), std::string::npos);
  EXPECT_NE(run({"sample", "base", "--output", "drawn"}).out.find(averaged + ": drawn"), std::string::npos);
  const Json of_average = evaluated("base", {}), of_last = evaluated("base", {"--weights", "last"});
  EXPECT_EQ(of_average.at("weights"), "average");
  EXPECT_EQ(of_average.at("other_weights"), "last");
  EXPECT_EQ(of_last.at("weights"), "last");
  EXPECT_EQ(of_last.at("other_weights"), "average");
  train_well("alone", with_idle({"--set", "train.ema=0"}));
  EXPECT_NE(run({"eval", "alone"}).out.find("step 2, context 64"), std::string::npos);
  EXPECT_FALSE(evaluated("alone", {}).contains("other_weights"));
}

// The schedule and the order of data are those of a run without --from; only the weights differ.
TEST_F(BeginFrom, ANewRunStartsAtStepZeroWithTheWeightsThatWereLearnt) {
  train_well("more", {"--from", "base"});
  const RunHistory base = read_history(dir / "base"), more = read_history(dir / "more");
  ASSERT_EQ(base.steps.size(), 40U);
  ASSERT_EQ(more.steps.size(), 40U);
  for (std::size_t i = 0; i < base.steps.size(); ++i) {
    EXPECT_EQ(more.steps[i].step, base.steps[i].step);
    EXPECT_EQ(more.steps[i].lr, base.steps[i].lr);
  }
  EXPECT_GT(base.steps.front().figure, 7);
  EXPECT_LT(more.steps.front().figure, 5.5);
}

TEST_F(BeginFrom, TheOtherRunIsOnlyRead) {
  const auto contents = [&] {
    std::map<std::string, std::pair<fs::file_time_type, std::string>> all;
    for (const auto& entry : fs::recursive_directory_iterator(dir / "base"))
      all[entry.path()] = {entry.last_write_time(), entry.is_regular_file() ? text_of(entry.path()) : ""};
    return all;
  };
  evaluated("base", {"--data", "other.h5"});
  const auto before = contents();
  EXPECT_GT(before.size(), 8U);
  train_well("reader", with_idle({"--from", "base"}));
  EXPECT_TRUE(contents() == before);
  const CommandResult itself = run({"train", "r.yaml", "--run", "./base", "--from", "base"});
  EXPECT_EQ(itself.exit_code, 2);
  EXPECT_EQ(itself.err,
            "longstride: --from base: is the directory that the new run would write to; choose another directory with "
            "--run\n");
  EXPECT_TRUE(contents() == before);
}

TEST_F(BeginFrom, WhereItBeganIsRecordedAndOutlivesAResume) {
  const CommandResult began = train_well("tuned", with_idle({"--from", "base", "--checkpoint", "20"}));
  const std::string origin = (dir / "base") + ", step 20, averaged weights";
  EXPECT_NE(began.err.find(origin), std::string::npos) << began.err;
  EXPECT_EQ(Json::parse(text("tuned/environment.json")).at("from"), origin);
  EXPECT_EQ(Json::parse(checkpoint_file("tuned", 2, "state.json")).at("began_from"), origin);
  train_well("tuned", {"--resume-changed", "--set", "train.steps=4", "--set", "train.warmup=0"});
  EXPECT_EQ(Json::parse(checkpoint_file("tuned", 4, "state.json")).at("began_from"), origin);
  ASSERT_EQ(run({"report", "tuned"}).exit_code, 0);
  EXPECT_NE(text("tuned/report.html").find("<th scope=\"row\">began with the weights of</th><td>" + origin + "</td>"),
            std::string::npos);
  EXPECT_FALSE(Json::parse(checkpoint_file("base", 40, "state.json")).contains("began_from"));
  EXPECT_FALSE(Json::parse(text("base/environment.json")).contains("from"));
}

TEST_F(BeginFrom, WhatLeavesTheParametersAsTheyAreMayDiffer) {
  const auto expect_listed = [](const CommandResult& result, const std::string& change) {
    EXPECT_NE(result.err.find("  changed     " + change + "\n"), std::string::npos) << result.err;
  };
  const std::string average = weights("base", 40, "ema.safetensors");
  expect_listed(train_well("other", with_idle({"--from", "base", "--set", "model.attention.summary=1", "--set",
                                               "model.dropout=0.1", "--set", "train.seed=5"})),
                "model.attention.summary: 2 there, 1 here");
  EXPECT_EQ(weights("other", 2), average);
  // Without tables of positions the context is free.
  const Arguments tableless = {"--set", "model.positions=none", "--set", "model.rotary_base=10000",
                               "--set", "train.ema=0"};
  Arguments longer = {"--set", "train.steps=2", "--set", "train.warmup=0"};
  longer.insert(longer.end(), tableless.begin(), tableless.end());
  train_well("long", longer);
  Arguments shorter = {"--from", "long", "--set", "data.context=32"};
  shorter.insert(shorter.end(), tableless.begin(), tableless.end());
  expect_listed(train_well("short", with_idle(shorter)), "data.context: 64 there, 32 here");
  EXPECT_EQ(weights("short", 2), weights("long", 2));
}

TEST_F(BeginFrom, AModelWithOtherParametersIsRefusedWithTheKeysToChange) {
  const std::string begin = "--from base: the weights do not fit the recipe's model: ";
  expect_refused({"--from", "base", "--set", "model.width=32"},
                 begin + "embedding.start is (16) there and (32) in the recipe; set model.width: 16 (it is 32)");
  expect_refused({"--from", "base", "--set", "model.layers=2"},
                 begin + "layers.1.attention_norm.weight (16) is missing there; set model.layers: 1 (it is 2)");
  expect_refused({"--from", "base", "--set", "data.context=32"},
                 begin +
                     "embedding.position.0.weight is (8, 16) there and (4, 16) in the recipe; set data.context: "
                     "64 (it is 32)");
  expect_refused({"--from", "base", "--set", "model.positions=none", "--set", "model.heads=4"},
                 begin +
                     "embedding.position.0.weight (8, 16) is missing in the recipe's model; set model.heads: 2 (it "
                     "is 4), model.positions: attention (it is none)");
}

// A model with another mixer has its own parameters as in a new run, and all others as they were learnt.
TEST_F(BeginFrom, WhatAnotherMixerAddsIsNew) {
  const std::string sections =
      "data: {kind: bytes, path: x.h5, context: 64}\n"
      "train: {steps: 2, global_batch: 2, lr: 1.0e-30, warmup: 0}\n"
      "model: {kind: decoder, layers: 1, width: 16, heads: 2, positions: none, mixers: ";
  write_text(dir / "dense.yaml",
             "name: d\n" + sections + "[{kind: attention, integration: merged, parts: [dense], stride: 8}]}\n");
  write_text(dir / "scan.yaml", "name: s\n" + sections + "[{kind: scan, form: delta, decay: head, convolution: 4}]}\n");
  run_well({"train", "dense.yaml", "--run", "dense", "--set", "train.lr=0.01", "--set", "train.seed=5"});
  run_well({"train", "scan.yaml", "--run", "fresh"});
  const std::string file = "dense/checkpoints/step-00000002/model.safetensors";
  for (const auto& [name, from] : {std::pair{"scan", std::string("dense")}, {"of_file", file}}) {
    run_well({"train", "scan.yaml", "--run", name, "--from", from}, 2);
    const auto tensor = [&](const std::string& run, const std::string& parameter) {
      const SafetensorsReader reader(dir / (run + "/checkpoints/step-00000002/model.safetensors"));
      const TensorEntry* entry = reader.find(parameter);
      if (entry == nullptr) return std::string();
      std::string bytes(static_cast<std::size_t>(entry->shape.count()) * sizeof(float), '\0');
      reader.read(parameter, Tensor(bytes.data(), Dtype::f32, entry->shape));
      return bytes;
    };
    const std::string own = "layers.0.attention.";
    for (const char* parameter : {"query_key_value.weight", "output.weight"})
      EXPECT_TRUE(tensor(name, own + parameter) == tensor("dense", own + parameter)) << parameter;
    for (const char* parameter : {"gate.weight", "decay.weight", "decay_bias", "beta.weight", "norm.weight"}) {
      EXPECT_FALSE(tensor(name, own + parameter).empty()) << parameter;
      EXPECT_TRUE(tensor(name, own + parameter) == tensor("fresh", own + parameter)) << parameter;
    }
  }
  expect_refused_with({"train", "dense.yaml", "--run", "back", "--from", "scan"},
                      "--from scan: the weights do not fit the recipe's model: "
                      "layers.0.attention.convolution.weight (48, 4) is missing in the recipe's model; set "
                      "model.mixers: [{layers: 1, heads: 0, kind: scan, form: delta, ");
}

TEST_F(BeginFrom, AFileOfWeightsWillDo) {
  const std::string file = "base/checkpoints/step-00000020/model.safetensors";
  const CommandResult began = train_well("file", with_idle({"--from", file}), 2);
  EXPECT_EQ(weights("file", 2), weights("base", 20));
  const std::string origin = dir / file;
  EXPECT_NE(began.err.find(origin + "\n"), std::string::npos) << began.err;
  EXPECT_EQ(Json::parse(checkpoint_file("file", 2, "state.json")).at("began_from"), origin);
}

TEST_F(BeginFrom, AFileOfOtherWeightsIsRefusedWithTheFirstDifference) {
  const std::string file = "base/checkpoints/step-00000020/model.safetensors",
                    moments = "base/checkpoints/step-00000020/optimizer-00000-of-00001.safetensors";
  const std::string begin = ": the weights do not fit the recipe's model: ";
  const std::string advice = "; set the keys of model as they were for these weights";
  expect_refused({"--from", file, "--set", "model.width=32"},
                 "--from " + file + begin + "embedding.start is (16) there and (32) in the recipe" + advice);
  expect_refused({"--from", file, "--set", "model.layers=2"},
                 "--from " + file + begin + "layers.1.attention_norm.weight (16) is missing there" + advice);
  expect_refused(
      {"--from", file, "--set", "model.positions=none"},
      "--from " + file + begin + "embedding.position.0.weight (8, 16) is missing in the recipe's model" + advice);
  expect_refused({"--from", moments}, "--from " + moments + begin + "embedding.start (16) is missing there" + advice);
  expect_refused({"--from", file, "--weights", "last"},
                 "--from " + file +
                     " is a file of weights, which has no checkpoints or averages to choose from; leave out --weights");
  expect_refused(
      {"--from", file, "--checkpoint", "best"},
      "--from " + file +
          " is a file of weights, which has no checkpoints or averages to choose from; leave out --checkpoint");
}

// A header of the file of base, and weights of which the last is not a number.
TEST_F(BeginFrom, WeightsThatAreNotFiniteAreRefused) {
  std::string bytes = checkpoint_file("base", 20, "model.safetensors");
  ASSERT_GT(bytes.size(), 8U);
  for (int i = 1; i <= 4; ++i) bytes[bytes.size() - static_cast<std::size_t>(i)] = '\xff';
  write_text(dir / "nan.safetensors", bytes);
  const CommandResult result = run(train("refused", {"--from", "nan.safetensors"}));
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_NE(result.err.find("are not finite, so training cannot begin with them"), std::string::npos) << result.err;
}

TEST_F(BeginFrom, WhatIsNoRunIsRefused) {
  expect_refused({"--from", "nowhere"},
                 "nowhere: there is no such run; give the directory of one that has saved a checkpoint");
  expect_refused({"--from", "empty"}, "empty: holds no checkpoint; give the directory of a run that has saved one");
  expect_refused({"--from", "none.safetensors"},
                 "--from none.safetensors: there is no such file; give a safetensors file or the directory of a run");
  write_text(dir / "no.safetensors", "text");
  expect_refused({"--from", "no.safetensors"},
                 "no.safetensors: not a valid safetensors file: it holds 4 bytes, fewer than the 8 of a header length");
  expect_refused({"--from", ""},
                 "--from: '' is not a value; give one, or leave the option out; see longstride train --help");
  expect_refused({"--from", "base", "--checkpoint", "7"}, "base: holds no checkpoint of step 7; choose from 20 and 40");
  expect_refused({"--from", "base", "--checkpoint", "newest"},
                 "--checkpoint is 'newest', but must be best, last, or a step such as 1000");
}

TEST_F(BeginFrom, ADamagedCheckpointIsRefused) {
  fs::copy(dir / "base", dir / "damaged", fs::copy_options::recursive);
  const std::string path = dir / "damaged/checkpoints/step-00000020/ema.safetensors";
  std::string bytes = text_of(path);
  bytes[bytes.size() / 2] = static_cast<char>(bytes[bytes.size() / 2] ^ 1);
  write_text(path, bytes);
  expect_refused(
      {"--from", "damaged", "--checkpoint", "20"},
      "damaged: the checkpoint of step 20 cannot be read (damaged/checkpoints/step-00000020/ema.safetensors: "
      "its content does not match its checksum); choose from 40");
}

TEST_F(BeginFrom, OptionsThatContradictEachOtherAreRefused) {
  for (const std::string flag : {"--resume", "--resume-changed"})
    expect_refused({"--from", "base", flag}, "--from and " + flag +
                                                 " are given, but a run that resumes has weights of its own; leave out "
                                                 "--from to continue the run, or " +
                                                 flag + " to start a new one");
  for (const Arguments& lonely : {Arguments{"--checkpoint", "best"}, Arguments{"--weights", "last"}}) {
    const CommandResult result = run(train("refused", lonely));
    EXPECT_EQ(result.exit_code, 2);
    EXPECT_EQ(result.err, "longstride: " + lonely[0] + " requires --from; see longstride train --help\n");
    EXPECT_FALSE(fs::exists(dir / "refused"));
  }
}

TEST_F(BeginFrom, AnAverageThatTheRunDoesNotKeepIsRefused) {
  train_well("plain", with_idle({"--from", "base", "--set", "train.ema=0"}));
  expect_refused({"--from", "plain", "--weights", "average"},
                 "plain: the run keeps no average of its weights (train.ema is 0); use --weights last");
}

}  // namespace
}  // namespace longstride::testing::begin_from_test
