// A recipe with the pattern that docs/develop/adding_a_pattern.md adds, after its changes have been made.
#include <gtest/gtest.h>

#include "launch/recipe/recipe.h"
#include "tests/launch/recipe/recipe_texts.h"

namespace longstride::testing {
namespace {

TEST(AddedPattern, IsReadFromARecipe) {
  const Recipe recipe = parse_recipe(
      small_recipe, "r.yaml", {"model.attention={integration: interleaved, parts: [previous_block], stride: 4}"});
  const kernels::PatternConfig& pattern = decoder(recipe).attention;
  std::string row;
  for (std::int64_t j = 0; j <= 10; ++j) row += kernels::allowed(pattern, 0, 2, 0, 11, 10, j) ? '#' : '.';
  EXPECT_EQ(row, "....####...");
  EXPECT_NE(recipe.resolved.find("parts: [previous_block]"), std::string::npos);
}

}  // namespace
}  // namespace longstride::testing
