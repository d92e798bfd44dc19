// Runs whose rows remember what they have read: what they keep on other numbers of ranks, and what is refused.
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "tests/support/text_run.h"

namespace longstride::testing::streams_test {
namespace {

namespace fs = std::filesystem;

// The learning rate is too small to change a weight, so that what rows remember has the same bits on any ranks.
const std::string recipe = remembering_recipe("length: 24",
                                              "steps: 9, global_batch: 4, micro_batch: 1, lr: 1.0e-37, warmup: 1, "
                                              "weight_decay: 0, log_every: 1, checkpoint_every: 3, keep: 5",
                                              32, "0.1");

class RunsThatRemember : public TextRun {
 protected:
  RunsThatRemember() : TextRun(recipe) {}

  std::string states(const std::string& of, int rank, int ranks) const {
    const std::string found = checkpoint_file(of, 9, fmt::format("states-{:05}-of-{:05}.safetensors", rank, ranks));
    EXPECT_FALSE(found.empty()) << of;
    return found;
  }
  // The checkpoints up to `step`, continued on as many ranks.
  void continue_from(const std::string& from, const std::string& to, int step, int ranks) const {
    copy_run(from, to);
    for (int later = step + 3; later <= 9; later += 3) fs::remove_all(dir / in_checkpoint(to, later, ""));
    run_well({"train", "r.yaml", "--run", to, "--resume"}, ranks);
  }
};

TEST_F(RunsThatRemember, KeepTheirRowsOnOneTwoAndFourRanks) {
  continue_from("run", "on-four", 3, 4);
  continue_from("on-four", "on-two", 6, 2);
  continue_from("on-four", "on-one", 6, 1);
  EXPECT_TRUE(states("on-one", 0, 1) == states("run", 0, 1));
  // The rows of two ranks, one after another, are those of one.
  continue_from("run", "by-two", 6, 2);
  for (const int rank : {0, 1}) EXPECT_TRUE(states("by-two", rank, 2) == states("on-two", rank, 2)) << rank;
}

TEST_F(RunsThatRemember, HaveCheckpointsOfTheVersionWithStates) {
  const auto state = nlohmann::json::parse(checkpoint_file("run", 9, "state.json"));
  EXPECT_EQ(state.at("version"), 3);
  EXPECT_EQ(state.at("steps_of_stream"), 3600 / 4 / 32);
}

TEST_F(RunsThatRemember, ResumeWithTheMemoryThatTheyHad) {
  expect_refused({"train", "r.yaml", "--run", "run", "--resume-changed", "--set", "train.steps=12", "--set",
                  "model.memory.length=25"},
                 "model.memory.length is 25, but the run in run began with 24; resume it with its own recipe, or start "
                 "another run");
}

TEST_F(RunsThatRemember, StatesOfAScanAreOfAsManyRows) {
  write_text(dir / "scan.yaml",
             "name: s\ndata: {kind: bytes, path: x.h5, context: 32, order: streams}\n"
             "model: {kind: decoder, layers: 1, width: 16, heads: 2, positions: none, "
             "mixers: [{kind: scan, memory: state}]}\n"
             "train: {steps: 2, global_batch: 2, lr: 1.0e-3, warmup: 1}\n");
  run_well({"train", "scan.yaml", "--run", "scan"});
  for (const char* flag : {"--resume", "--resume-changed"})
    expect_refused({"train", "scan.yaml", "--run", "scan", flag, "--set", "train.global_batch=4"},
                   "train.global_batch is 4, but the run in scan began with 2; resume it with its own recipe, or start "
                   "another run");
}

TEST_F(RunsThatRemember, AReachWithoutEndIsNoNumber) {
  const std::string both =
      "[[{kind: scan, heads: 1, memory: state}, {kind: distance, heads: 1, table: none, memory: {length: 8}}]]";
  write_text(dir / "both.yaml",
             "name: b\ndata: {kind: bytes, path: x.h5, context: 32, order: streams}\n"
             "model: {kind: decoder, layers: 1, width: 16, heads: 2, positions: none, mixers: " +
                 both + "}\ntrain: {steps: 2, global_batch: 2, lr: 1.0e-3, warmup: 1}\n");
  const auto plan = nlohmann::json::parse(run_well({"plan", "both.yaml", "--json", "--quiet"}).out);
  for (const char* key : {"reach", "reach_of_layer"})
    for (const char* end : {"farthest", "before_segment"}) EXPECT_TRUE(plan.at("memory").at(key).at(end).is_null());
}

TEST_F(RunsThatRemember, WhatCannotRememberIsRefusedInASentence) {
  expect_refused({"plan", "r.yaml", "--set", "data.order=windows"},
                 "--set data.order=windows: data.order is windows, but this model remembers what its rows have read "
                 "before; set data.order: streams");
  expect_refused(
      {"plan", "r.yaml", "--set", "parallel.sequence_ranks=2"},
      "--set parallel.sequence_ranks=2: parallel.sequence_ranks is 2, but attention with model.distance reads "
      "whole sequences; set it to 1");
  expect_refused(
      {"train", "r.yaml", "--run", "none", "--set", "train.global_batch=128"},
      "x.h5: 'train': holds 3,600 bytes, fewer than one context of 32 for each of 128 rows; prepare it with a "
      "larger split, or lower train.global_batch");
  expect_refused({"eval", "run", "--windows", "2", "--spread"},
                 "--spread cannot be used with this model, which reads a split in order and remembers what it has "
                 "read; leave it out");
}

}  // namespace
}  // namespace longstride::testing::streams_test
