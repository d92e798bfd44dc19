// Several mistakes in a recipe are reported together, and names used by other programs and the paper are recognised.
#include <gtest/gtest.h>

#include <algorithm>

#include "launch/recipe/recipe.h"
#include "tests/launch/recipe/recipe_texts.h"
#include "tests/support/command.h"

namespace longstride::testing::recipe_mistakes_test {
namespace {

std::string error_of(const std::string& text, const std::vector<std::string>& overrides = {}) {
  return user_error_of([&] { parse_recipe(text, "r.yaml", overrides); });
}

// One of every kind: a key, a type, a choice, two keys that disagree, a setting that cannot train, a malformed --set.
TEST(RecipeMistakes, AreReportedTogetherWithTheirLines) {
  std::string text = edited(small_recipe, "width: 16", "width: wide");
  text = edited(edited(text, "layers: 2", "layres: 2"), "stride: 8", "stride: 128");
  text = edited(edited(text, "merged", "merge"), "lr: 1.0e-3", "lr: 1.0e-3\n  micro_batch: 3");
  EXPECT_EQ(error_of(text, {"model"}),
            "r.yaml: 6 mistakes:\n"
            "  --set model: must be KEY=VALUE, as in --set model.layers=12\n"
            "  r.yaml:5: unknown key 'layres' in model; did you mean 'layers'?\n"
            "  r.yaml:6: model.width is wide, but must be a positive whole number\n"
            "  r.yaml:9: model.attention.integration is merge, but must be interleaved or merged or multihead; did you "
            "mean 'merged'?\n"
            "  r.yaml:17: train.micro_batch is 3, but must divide train.global_batch, 4\n"
            "  r.yaml:11: model.attention.stride is 128, but must be at most data.context, 64; set "
            "model.attention.stride: 8, about the square root of the context");
}

TEST(RecipeMistakes, OfABaseAreReportedWithItsName) {
  const TemporaryDirectory dir;
  write_text(dir / "base.yaml", edited(small_recipe, "layers: 2", "layers: 0"));
  write_text(dir / "r.yaml", "base: base.yaml\nname: mine\nmodel: {heads: none}\n");
  const std::string error = user_error_of([&] { read_recipe(dir / "r.yaml"); });
  EXPECT_NE(error.find((dir / "base.yaml") + ":5: model.layers is 0"), std::string::npos) << error;
  EXPECT_NE(error.find((dir / "r.yaml") + ":3: model.heads is none"), std::string::npos) << error;
}

// A key that is missing or invalid is not reported a second time by checks of several keys.
TEST(RecipeMistakes, AreReportedOnce) {
  for (const char* line : {"  heads: 2\n", "  width: 16\n", "  steps: 20\n", "  global_batch: 4\n"}) {
    const std::string error = error_of(edited(small_recipe, line, ""));
    EXPECT_NE(error.find(" is missing; add it"), std::string::npos) << error;
    EXPECT_EQ(error.find('\n'), std::string::npos) << error;
  }
}

TEST(RecipeMistakes, AreShownUpToTwenty) {
  std::string text = small_recipe;
  for (int i = 0; i < 4000; ++i) text += "unheard_of_" + std::to_string(i) + ": 1\n";
  const std::string error = error_of(text);
  EXPECT_TRUE(error.starts_with("r.yaml: 4000 mistakes:\n")) << error;
  EXPECT_TRUE(error.ends_with("\n  and 3980 more")) << error;
  EXPECT_EQ(std::count(error.begin(), error.end(), '\n'), 21);
}

// A recipe with another program's names: every name is recognised, and its value is read under the right one.
TEST(RecipeMistakes, NamesOfOtherProgramsAreUnderstood) {
  std::string text = edited(edited(small_recipe, "context: 64", "block_size: 64"), "layers: 2", "n_layer: 2");
  text = edited(edited(text, "width: 16", "n_embd: 16"), "heads: 2", "num_attention_heads: 3");
  text = edited(edited(text, "train:", "training:"), "steps: 20", "max_steps: 20");
  text = edited(edited(text, "global_batch: 4", "batch_size: 4"), "lr: 1.0e-3", "learning_rate: 1.0e-3");
  text = edited(text, "warmup: 2", "warmup_steps: 2");
  EXPECT_EQ(error_of(text),
            "r.yaml: 10 mistakes:\n"
            "  r.yaml:13: unknown key 'training'; did you mean 'train'?\n"
            "  r.yaml:2: unknown key 'block_size' in data; did you mean 'context'?\n"
            "  r.yaml:5: unknown key 'n_layer' in model; did you mean 'layers'?\n"
            "  r.yaml:6: unknown key 'n_embd' in model; did you mean 'width'?\n"
            "  r.yaml:7: unknown key 'num_attention_heads' in model; did you mean 'heads'?\n"
            "  r.yaml:14: unknown key 'max_steps' in train; did you mean 'steps'?\n"
            "  r.yaml:15: unknown key 'batch_size' in train; did you mean 'global_batch'?\n"
            "  r.yaml:16: unknown key 'learning_rate' in train; did you mean 'lr'?\n"
            "  r.yaml:17: unknown key 'warmup_steps' in train; did you mean 'warmup'?\n"
            "  r.yaml:7: model.heads is 3, but must divide model.width, 16");
}

TEST(RecipeMistakes, AKeyInAnotherSectionIsSentThere) {
  EXPECT_EQ(error_of(std::string(small_recipe) + "optimizer: {lr: 3}\n"),
            "r.yaml:18: unknown key 'lr' in optimizer; did you mean 'train.lr'?");
  EXPECT_EQ(error_of(std::string(small_recipe) + "batch_size: 3\n"),
            "r.yaml:18: unknown key 'batch_size'; did you mean 'train.global_batch'?");
  EXPECT_EQ(error_of(edited(small_recipe, "heads: 2", "heads: 2\n  seq_len: 64")),
            "r.yaml:8: unknown key 'seq_len' in model; did you mean 'data.context'?");
}

TEST(RecipeMistakes, ThePapersNamesOfPatternsAreExplained) {
  const std::string allowed = "but must be " + allowed_parts() + "; ";
  EXPECT_EQ(error_of(edited(small_recipe, "[fixed_block, fixed_summary]", "[strided]")),
            "r.yaml:10: model.attention.parts is strided, " + allowed + "strided is [local, column]");
  EXPECT_EQ(error_of(edited(small_recipe, "[fixed_block, fixed_summary]", "fixed")),
            "r.yaml:10: model.attention.parts is fixed, " + allowed + "fixed is [fixed_block, fixed_summary]");
}

}  // namespace
}  // namespace longstride::testing::recipe_mistakes_test
