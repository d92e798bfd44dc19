// Settings that are valid but cannot train: each is refused with the value to set. A run that began with one can still
// be read.
#include <gtest/gtest.h>

#include <fstream>

#include "launch/recipe/recipe.h"
#include "tests/launch/recipe/recipe_texts.h"
#include "tests/support/temporary_directory.h"

namespace longstride::testing::recipe_sense_test {
namespace {

std::string error_of(const std::string& text, const std::vector<std::string>& overrides = {}) {
  return user_error_of([&] { parse_recipe(text, "r.yaml", overrides); });
}

struct Edit {
  const char *from, *to, *error;
};

const Edit edits[] = {
    {"warmup: 2", "warmup: 21",
     "r.yaml:17: train.warmup is 21, but must be at most train.steps, 20, or the learning rate never reaches train.lr; "
     "set "
     "train.warmup: 2, a tenth of the steps"},
    {"  warmup: 2\n", "",
     "r.yaml:14: train.warmup is 5000 by default, but must be at most train.steps, 20, or the learning rate never "
     "reaches "
     "train.lr; set train.warmup: 2, a tenth of the steps"},
    {"warmup: 2", "warmup: 2\n  decay_steps: 5",
     "r.yaml:18: train.decay_steps is 5, but train.schedule cosine has no such phase; remove it, or set "
     "train.schedule: warmup_stable_decay"},
    {"warmup: 2", "warmup: 2\n  decay_steps: 5\n  schedule: constant",
     "r.yaml:18: train.decay_steps is 5, but train.schedule constant has no such phase; remove it, or set "
     "train.schedule: warmup_stable_decay"},
    {"warmup: 2", "warmup: 2\n  decay_steps: 21\n  schedule: warmup_stable_decay",
     "r.yaml:18: train.decay_steps is 21, but must be at most train.steps, 20; set train.decay_steps: 2, a tenth of "
     "the steps"},
    {"warmup: 2", "warmup: 2\n  decay_steps: 19\n  schedule: warmup_stable_decay",
     "r.yaml:18: train.decay_steps is 19, but with train.warmup, 2, must be at most train.steps, 20; lower one of the "
     "two"},
    {"warmup: 2", "warmup: 19\n  schedule: warmup_stable_decay",
     "r.yaml:18: train.decay_steps is 2, a tenth of the steps, but with train.warmup, 19, must be at most train.steps, "
     "20; lower one of the two"},
    {"warmup: 2", "warmup: 2\n  lr_floor: 1e-4\n  schedule: constant",
     "r.yaml:18: train.lr_floor is 0.0001, but train.schedule constant never lowers the learning rate; remove it, or "
     "set train.schedule: cosine"},
    {"warmup: 2", "warmup: 2\n  lr_floor: 0.1",
     "r.yaml:18: train.lr_floor is 0.1, but must be below train.lr, 0.001: it is a learning rate, not a part of one; "
     "set train.lr_floor: 0.0001, a tenth of it"},
    {"warmup: 2", "warmup: 2\n  lr_floor: 1e-3",
     "r.yaml:18: train.lr_floor is 0.001, but must be below train.lr, 0.001: it is a learning rate, not a part of one; "
     "set train.lr_floor: 0.0001, a tenth of it"},
    {"warmup: 2", "warmup: 2\n  schedule: linear",
     "r.yaml:18: train.schedule is linear, but must be cosine or constant or warmup_stable_decay or reciprocal_sqrt"},
    {"warmup: 2", "warmup: 2\n  decay_from: 5",
     "r.yaml:18: train.decay_from is 5, but train.schedule cosine does not begin to fall there; remove it, or set "
     "train.schedule: reciprocal_sqrt"},
    {"warmup: 2", "warmup: 2\n  lr_is: factor",
     "r.yaml:18: train.lr_is is factor, but with train.schedule cosine train.lr is the peak; remove it, or set "
     "train.schedule: reciprocal_sqrt"},
    {"warmup: 2", "warmup: 10\n  schedule: reciprocal_sqrt\n  decay_from: 5",
     "r.yaml:19: train.decay_from is 5, but must be at least train.warmup, 10, or the learning rate falls before it "
     "has risen; set train.decay_from: 0 for the end of the warmup"},
    {"lr: 1.0e-3", "lr: 3\n  schedule: reciprocal_sqrt\n  lr_is: factor\n  decay_from: 4",
     "r.yaml:16: train.lr is 3, but must be at most 2, so that the learning rate is at most 1: a step moves every "
     "weight by about that much; set train.lr: 3.5e-4, the paper's"},
    {"warmup: 2", "warmup: 2\noptimizer: {tensor_clip: 0.03}",
     "r.yaml:18: optimizer.tensor_clip has no effect: only optimizer.kind adagrad reads it; remove it"},
    {"warmup: 2", "warmup: 2\n  beta2: 0.98\noptimizer: {kind: adagrad}",
     "r.yaml:18: train.beta2 has no effect: only optimizer.kind adam or muon reads it; remove it"},
    {"warmup: 2", "warmup: 2\n  beta1: 0.8\noptimizer: {kind: adagrad}",
     "r.yaml:18: train.beta1 has no effect: only optimizer.kind adam, muon or adafactor reads it; remove it"},
    {"warmup: 2", "warmup: 2\noptimizer: {scale_parameter: false}",
     "r.yaml:18: optimizer.scale_parameter has no effect: only optimizer.kind adafactor reads it; remove it"},
    {"warmup: 2", "warmup: 2\noptimizer: {decay_rate: 0.5}",
     "r.yaml:18: optimizer.decay_rate has no effect: only optimizer.kind adafactor reads it; remove it"},
    {"warmup: 2", "warmup: 2\noptimizer: {clip_threshold: 2}",
     "r.yaml:18: optimizer.clip_threshold has no effect: only optimizer.kind adafactor reads it; remove it"},
    {"warmup: 2", "warmup: 2\n  keep_best: true",
     "r.yaml:18: train.keep_best is true, but train.evaluate_every is 0, so there are no validation losses to choose "
     "by; set train.evaluate_every: 1000"},
    {"warmup: 2", "warmup: 2\n  keep_best: true\n  checkpoint_every: 0",
     "r.yaml:18: train.keep_best is true, but train.evaluate_every is 0, so there are no validation losses to choose "
     "by; set train.evaluate_every: 2"},
    {"warmup: 2", "warmup: 2\n  keep_best: true\n  checkpoint_every: 0\n  evaluate_every: 5",
     "r.yaml:18: train.keep_best is true, but train.checkpoint_every is 0, so there is only the last checkpoint; set "
     "train.checkpoint_every: 5"},
    {"warmup: 2", "warmup: 2\n  keep_best: true\n  checkpoint_every: 6\n  evaluate_every: 4",
     "r.yaml:18: train.keep_best is true, but few checkpoints have a validation loss, because train.checkpoint_every, "
     "6, and train.evaluate_every, 4, are not multiples of one another; set train.evaluate_every: 6"},
    {"lr: 1.0e-3", "lr: 100",
     "r.yaml:16: train.lr is 100, but must be at most 1: a step moves every weight by about that much; set train.lr: "
     "3.5e-4, the paper's"},
    {"lr: 1.0e-3", "lr: 1e-45",
     "r.yaml:16: train.lr is 1e-45, but must be a number that fp32 can represent: a step moves every weight by about "
     "that much; "
     "set train.lr: 3.5e-4, the paper's"},
    {"warmup: 2", "weight_decay: 1000\n  warmup: 2",
     "r.yaml:17: train.weight_decay is 1000, but its product with train.lr, 0.001, must be below 1, or a step flips "
     "every weight's sign; set train.weight_decay: 0.01"},
    {"warmup: 2", "weight_decay: 3\n  warmup: 2\n  stages: [{until: 5, lr: 0.5}]",
     "r.yaml:17: train.weight_decay is 3, but its product with the largest learning rate, 0.5, must be below 1, or a "
     "step flips every weight's sign; set train.weight_decay: 0.01"},
    {"warmup: 2", "warmup: 2\n  epsilon: 1e-50",
     "r.yaml:18: train.epsilon is 1e-50, which is 0 in fp32; set train.epsilon: 1e-8"},
    {"warmup: 2", "warmup: 2\n  clip: 1e-30",
     "r.yaml:18: train.clip is 1e-30, whose square is 0 in fp32; set train.clip: 1.0, or 0 for no clipping"},
    {"warmup: 2", "warmup: 2\n  beta2: 0.9999999999",
     "r.yaml:18: train.beta2 is 0.9999999999, which is 1 in fp32; set train.beta2: 0.999"},
    {"warmup: 2", "warmup: 2\n  ema: 0.99999999",
     "r.yaml:18: train.ema is 0.99999999, which is 1 in fp32; set train.ema: 0.999"},
    {"heads: 2", "heads: 2\n  dropout: 0.9999999999",
     "r.yaml:8: model.dropout is 0.9999999999, which is 1 in fp32; set model.dropout: 0.25"},
    {"warmup: 2", "warmup: 2\n  hang_seconds: 0.01",
     "r.yaml:18: train.hang_seconds is 0.01, but must be at least 1, or 0 for no watchdog: a rank that is merely busy "
     "would end the job; set train.hang_seconds: 25"},
    {"stride: 8", "stride: 65",
     "r.yaml:11: model.attention.stride is 65, but must be at most data.context, 64; set model.attention.stride: 8, "
     "about the square root of the context"},
    {"stride: 8\n    summary: 2", "stride: 65\n    summary: 20",
     "r.yaml:11: model.attention.stride is 65, but must be at most data.context, 64; set model.attention.stride: 32, "
     "about the square root of the context"},
    {"stride: 8\n    summary: 2", "stride: 65\n    summary: 65",
     "r.yaml:11: model.attention.stride is 65, but must be at most data.context, 64; lower it and "
     "model.attention.summary to at most 64"},
    {"parts: [fixed_block, fixed_summary]\n    stride: 8\n    summary: 2",
     "parts: [local, column]\n    stride: 8\n    window: 65",
     "r.yaml:12: model.attention.window is 65, but must be at most data.context, 64; set model.attention.window: 0, "
     "which is stride + 1"},
    {"parts: [fixed_block, fixed_summary]\n    stride: 8\n    summary: 2", "parts: [local]\n    window: 65",
     "r.yaml: 2 mistakes:\n  r.yaml:3: model.positions is attention, whose tables follow the stride of a pattern, but "
     "no "
     "layer has one; set model.positions: none\n  r.yaml:11: model.attention.window is 65, but must be at most "
     "data.context, 64; lower it"},
    {"stride: 8", "stride: 8\n    window: 16",
     "r.yaml:12: model.attention.window has no effect without a part that reads it (local, dilated); remove it"},
    {"[fixed_block, fixed_summary]", "[local, column]",
     "r.yaml:12: model.attention.summary has no effect without a part that reads it (fixed_summary); remove it"},
    {"[fixed_block, fixed_summary]\n    stride: 8\n    summary: 2",
     "[local, column]\n    stride: 8\n    distinct_heads: true",
     "r.yaml:12: model.attention.distinct_heads has no effect without a part that reads it (fixed_summary); remove it"},
    {"[fixed_block, fixed_summary]\n    stride: 8\n    summary: 2", "[local, first]\n    stride: 8\n    first: 65",
     "r.yaml:12: model.attention.first is 65, but must be at most data.context, 64"},
    {"stride: 8", "stride: 8\n    first: 4",
     "r.yaml:12: model.attention.first has no effect without a part that reads it (first); remove it"},
    {"[fixed_block, fixed_summary]\n    stride: 8\n    summary: 2",
     "[local, column]\n    stride: 8\n    summary_inclusive: true",
     "r.yaml:12: model.attention.summary_inclusive has no effect without a part that reads it (fixed_summary); remove "
     "it"},
};

TEST(RecipeSense, WhatCannotTrainIsRefusedWithTheValueToSet) {
  for (const Edit& edit : edits) EXPECT_EQ(error_of(edited(small_recipe, edit.from, edit.to)), edit.error);
}

// The resolved recipe has no trace of it, so that it can be trained again.
TEST(RecipeSense, WhatOtherPartsOverrideMayHaveSettingsThatTheyDoNotRead) {
  const TemporaryDirectory dir;
  std::ofstream(dir / "base.yaml") << small_recipe;
  std::ofstream(dir / "r.yaml") << "base: base.yaml\nmodel: {attention: {parts: [local, column]}}\n";
  const auto expect_read = [](const Recipe& recipe) {
    EXPECT_TRUE(parse_recipe(recipe.resolved, "resolved.yaml", {}).model != nullptr);
    EXPECT_EQ(recipe.resolved.find("summary: 2"), std::string::npos) << recipe.resolved;
  };
  expect_read(read_recipe(dir / "r.yaml", {}));
  expect_read(read_recipe(dir / "base.yaml", {"model.attention.parts=[local, column]"}));
  EXPECT_EQ(user_error_of([&] { read_recipe(dir / "r.yaml", {"model.attention.summary=2"}); }),
            "--set model.attention.summary=2: model.attention.summary has no effect without a part that reads it "
            "(fixed_summary); remove it");
}

TEST(RecipeSense, TheLimitsThemselvesAreAllowed) {
  const char* allowed[][2] = {{"warmup: 2", "warmup: 20"},
                              {"warmup: 2", "warmup: 0"},
                              {"warmup: 2", "warmup: 2\n  decay_steps: 18\n  schedule: warmup_stable_decay"},
                              {"warmup: 2", "warmup: 18\n  schedule: warmup_stable_decay"},
                              {"warmup: 2", "warmup: 20\n  schedule: constant"},
                              {"warmup: 2", "warmup: 2\n  lr_floor: 9.9e-4"},
                              {"warmup: 2", "warmup: 2\n  keep_best: true\n  evaluate_every: 500"},
                              {"warmup: 2", "warmup: 2\n  keep_best: true\n  evaluate_every: 2000"},
                              {"lr: 1.0e-3", "lr: 1"},
                              {"lr: 1.0e-3", "lr: 2\n  schedule: reciprocal_sqrt\n  lr_is: factor\n  decay_from: 4"},
                              {"warmup: 2", "warmup: 2\n  schedule: reciprocal_sqrt\n  decay_from: 2"},
                              {"warmup: 2", "warmup: 2\n  beta1: 0.5\noptimizer: {kind: adafactor}"},
                              {"warmup: 2", "warmup: 2\n  epsilon: 1.2e-38"},
                              {"warmup: 2", "warmup: 2\n  hang_seconds: 1"},
                              {"warmup: 2", "warmup: 2\n  hang_seconds: 0"},
                              {"warmup: 2", "warmup: 2\n  weight_decay: 999"},
                              {"warmup: 2", "warmup: 2\n  beta2: 0.9999999"},
                              {"stride: 8", "stride: 64"},
                              {"[fixed_block, fixed_summary]\n    stride: 8\n    summary: 2",
                               "[local, column]\n    stride: 8\n    window: 64"}};
  for (const auto& [from, to] : allowed) EXPECT_EQ(error_of(edited(small_recipe, from, to)), "") << to;
}

// Fewer steps on the command line are the usual cause of a warmup that never ends.
TEST(RecipeSense, AnOverrideIsCheckedAgainstTheFilesValues) {
  EXPECT_EQ(error_of(edited(small_recipe, "steps: 20", "steps: 200"), {"train.steps=1"}),
            "r.yaml:17: train.warmup is 2, but must be at most train.steps, 1, or the learning rate never reaches "
            "train.lr; set "
            "train.warmup: 1, a tenth of the steps");
  EXPECT_EQ(error_of(small_recipe, {"train.steps=1", "train.warmup=1"}), "");
}

TEST(RecipeSense, ARunThatBeganWithSuchASettingIsRead) {
  std::string text = parse_recipe(small_recipe, "r").resolved;
  text = edited(edited(text, "  warmup: 2\n", "  warmup: 5000\n"), "hang_seconds: 25", "hang_seconds: 0.01");
  EXPECT_NE(error_of(text).find("2 mistakes"), std::string::npos) << error_of(text);
  EXPECT_EQ(recipe_of_run(text, "run/recipe.yaml").train.warmup, 5000);
}

TEST(RecipeSense, ARunThatBeganBeforeAKeyWasRenamedIsRead) {
  const std::string text = std::string(small_recipe) + "parallel: {context: 2}\n";
  EXPECT_EQ(recipe_of_run(text, "run/recipe.yaml").train.parallel.sequence_ranks, 2);
  EXPECT_EQ(error_of(text), "r.yaml:18: parallel.context was renamed to parallel.sequence_ranks");
}

}  // namespace
}  // namespace longstride::testing::recipe_sense_test
