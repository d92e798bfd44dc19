// Bands of the vocabulary (model.adaptive): what a recipe may say of them.
#include <gtest/gtest.h>

#include "framework/models/decoder/config.h"
#include "launch/recipe/recipe.h"
#include "tests/launch/recipe/recipe_texts.h"
#include "tests/support/command.h"

namespace longstride::testing::recipe_adaptive_test {
namespace {

std::string with(const std::string& adaptive) {
  return edited(small_recipe, "train:", "  adaptive: {" + adaptive + "}\ntrain:");
}

std::string error_of(const std::string& adaptive, const std::vector<std::string>& overrides = {}) {
  return user_error_of([&] { parse_recipe(with(adaptive), "r.yaml", overrides); });
}

TEST(RecipeAdaptive, BandsAreReadAndWritten) {
  const Recipe recipe = parse_recipe(with("cutoffs: [20, 200], divide: 4"), "r.yaml");
  const auto& config = dynamic_cast<const DecoderConfig&>(*recipe.model);
  EXPECT_EQ(config.adaptive.cutoffs, (std::vector<std::int64_t>{20, 200}));
  EXPECT_EQ(config.adaptive.divide, 4);
  EXPECT_EQ(parse_recipe(recipe.resolved, "r.yaml").resolved, recipe.resolved);
  EXPECT_NE(recipe.resolved.find("cutoffs: [20, 200]"), std::string::npos) << recipe.resolved;
  EXPECT_EQ(parse_recipe(small_recipe, "r.yaml").resolved.find("adaptive"), std::string::npos);
}

TEST(RecipeAdaptive, MistakesAreNamedWithWhatToDo) {
  const std::pair<const char*, const char*> mistakes[] = {
      {"divide: 2", "r.yaml:13: model.adaptive.cutoffs is missing; add it (docs/guide/recipes.md lists every key)"},
      {"cutoffs: []",
       "r.yaml:13: model.adaptive.cutoffs is an empty list, but must be a whole number or a list of them"},
      {"cutoffs: [0, 9]", "r.yaml:13: model.adaptive.cutoffs is 0, but must be a positive whole number"},
      {"cutoffs: [20, 20]",
       "r.yaml:13: model.adaptive.cutoffs has 20 after 20, but must rise: each is the first id of a band, and ids are "
       "sorted by frequency"},
      {"cutoffs: [20, 256]",
       "r.yaml:13: model.adaptive.cutoffs ends with 256, but must stay below data.vocabulary, which is 256; "
       "remove those beyond"},
      {"cutoffs: [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16]",
       "r.yaml:13: model.adaptive.cutoffs has 16 ids, but must have at most 15; join some of the bands"},
      {"cutoffs: [20, 200], divide: 3",
       "r.yaml:13: model.adaptive.divide is 3, but must divide model.width, 16, once for each of the 2 cutoffs; choose "
       "1, or another width"},
      {"cutoffs: [20, 40, 60, 80, 100], divide: 2",
       "r.yaml:13: model.adaptive.divide is 2, but must divide model.width, 16, once for each of the 5 cutoffs; choose "
       "1, or another width"},
      {"cutoffs: [20], divide: 0", "r.yaml:13: model.adaptive.divide is 0, but must be a positive whole number"},
  };
  for (const auto& [adaptive, message] : mistakes) EXPECT_EQ(error_of(adaptive), message) << adaptive;
}

TEST(RecipeAdaptive, AnEncoderHasNone) {
  const std::string error = error_of("cutoffs: [20]", {"model.kind=encoder", "objective.kind=masked"});
  EXPECT_NE(error.find("unknown key 'adaptive' in model"), std::string::npos) << error;
}

}  // namespace
}  // namespace longstride::testing::recipe_adaptive_test
