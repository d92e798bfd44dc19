// Settings of a compressed memory: what must agree, and what has no effect.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "framework/models/decoder/config.h"
#include "launch/recipe/recipe.h"
#include "tests/launch/recipe/recipe_texts.h"
#include "tests/support/temporary_directory.h"

namespace longstride::testing::recipe_memory_test {
namespace {

constexpr const char* recipe = R"(name: small
data: {kind: bytes, path: x.h5, context: 12, order: streams}
model:
  kind: decoder
  layers: 2
  width: 16
  heads: 2
  positions: none
  distance: {table: sinusoid}
  memory:
    length: 24
    compressed: 8
    rate: 3
    compress: dilated
    reconstruction: 0.5
train: {steps: 20, global_batch: 4, lr: 1.0e-3, warmup: 2}
)";

struct Edit {
  const char *from, *to, *error;
};

const Edit edits[] = {
    {"  positions: none\n", "",
     "r.yaml:3: model.positions is attention, whose tables follow the stride of a pattern, but no layer has one; "
     "set model.positions: none"},
    {"positions: none", "positions: data",
     "r.yaml:8: model.positions is data, but only pictures have rows, columns and channels; use none"},
    {"length: 24", "length: 18",
     "r.yaml:11: model.memory.length is 18, but before a compressed memory must be a multiple of data.context, 12, "
     "because whole segments leave it; set model.memory.length: 24"},
    {"rate: 3", "rate: 5",
     "r.yaml:13: model.memory.rate is 5, but must divide data.context, 12; set model.memory.rate: 4"},
    {"compressed: 8\n    rate: 3", "compressed: 2\n    rate: 5",
     "r.yaml:13: model.memory.rate is 5, but must divide data.context, 12; set model.memory.rate: 6"},
    {"    rate: 3\n", "",
     "r.yaml:10: model.memory.rate is 0, but a compressed memory needs the number of rows that become one; set "
     "model.memory.rate: 3"},
    {"compressed: 8", "compressed: 3",
     "r.yaml:12: model.memory.compressed is 3, but must be at least data.context / model.memory.rate, 4, the rows that "
     "a segment becomes"},
    {"compress: dilated", "compress: max",
     "r.yaml:15: model.memory.reconstruction is 0.5, but only convolution and dilated have weights that learn from "
     "this "
     "loss; remove it, or change model.memory.compress"},
    {"compressed: 8\n    rate: 3\n    compress: dilated\n    reconstruction: 0.5", "rate: 3",
     "r.yaml:12: model.memory.rate has no effect, because model.memory.compressed is 0; remove it, or set the number "
     "of "
     "rows of a compressed memory"},
    {"compressed: 8\n    rate: 3\n    compress: dilated\n    reconstruction: 0.5", "compress: dilated",
     "r.yaml:12: model.memory.compress has no effect, because model.memory.compressed is 0; remove it, or set the "
     "number "
     "of rows of a compressed memory"},
    {"compressed: 8\n    rate: 3\n    compress: dilated\n    reconstruction: 0.5", "reconstruction: 0.5",
     "r.yaml:12: model.memory.reconstruction has no effect, because model.memory.compressed is 0; remove it, or set "
     "the "
     "number of rows of a compressed memory"},
    {"compress: dilated", "compress: mostused",
     "r.yaml:14: model.memory.compress is mostused, but must be mean or max or convolution or dilated or most_used; "
     "did "
     "you mean 'most_used'?"},
};

TEST(RecipeMemory, EachMistakeHasItsSentence) {
  for (const Edit& edit : edits)
    EXPECT_EQ(user_error_of([&] { parse_recipe(edited(recipe, edit.from, edit.to), "r.yaml"); }), edit.error);
}

std::string error_of(const std::string& text) {
  return user_error_of([&] { parse_recipe(text, "r.yaml"); });
}

// With a context of 64 the rate was to be set to 3, as in the paper, which was then refused.
TEST(RecipeMemory, ARateThatIsMissingHasAnAdviceThatCanBeFollowed) {
  const std::string missing = edited(edited(recipe, "context: 12", "context: 64"), "length: 24", "length: 64");
  for (const int rows : {8, 32, 64}) {
    const std::string text =
        edited(edited(missing, "compressed: 8", fmt::format("compressed: {}", rows)), "    rate: 3\n", "");
    const std::string error = error_of(text), advice = "; set model.memory.rate: ";
    ASSERT_NE(error.find(advice), std::string::npos) << error;
    const std::string rate = error.substr(error.find(advice) + advice.size());
    EXPECT_EQ(rate, rows == 8 ? "8" : "2");
    EXPECT_EQ(user_error_of([&] { parse_recipe(text, "r.yaml", {"model.memory.rate=" + rate}); }), "");
  }
}

// Keys of attention in a recipe with a distance term: the section that reads them cannot be added.
TEST(RecipeMemory, KeysOfTheOtherMechanismAreNotAdvised) {
  EXPECT_EQ(
      error_of(edited(recipe, "positions: none", "positions: none\n  integration: merged")).find("model.attention"),
      std::string::npos);
  EXPECT_EQ(error_of(edited(recipe, "positions: none", "positions: none\n  window: 8")),
            "r.yaml:9: unknown key 'window' in model; did you mean 'model.distance.window'?");
  const std::string both =
      user_error_of([&] { parse_recipe(recipe, "r.yaml", {"model.attention.integration=merged"}); });
  EXPECT_NE(both.find("model has both attention, a pattern of the paper, and distance, "), std::string::npos) << both;
}

TEST(RecipeMemory, IsRefusedForPicturesInOneSentence) {
  EXPECT_EQ(error_of(edited(edited(recipe, "kind: bytes", "kind: cifar10"), "context: 12", "context: 3072"))
                .find("set data.order"),
            std::string::npos);
}

TEST(RecipeMemory, IsReadAndWritten) {
  const Recipe read = parse_recipe(recipe, "r.yaml");
  const MemoryConfig& memory = decoder(read).memory;
  EXPECT_EQ(memory.rows(), 32);
  EXPECT_EQ(memory.rate, 3);
  EXPECT_EQ(memory.compress, Compression::dilated);
  EXPECT_EQ(memory.reconstruction, 0.5);
  EXPECT_EQ(parse_recipe(read.resolved, "r.yaml").resolved, read.resolved);
}

}  // namespace
}  // namespace longstride::testing::recipe_memory_test
