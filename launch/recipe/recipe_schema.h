// Declares every key of a recipe, once. The reader fills a Recipe from YAML, the writer prints the resolved recipe, and
// the tests compare the keys with docs/guide/recipes.md. The model's own keys are declared in its folder.
#pragma once
#include "framework/core/settings/visitor.h"
#include "launch/recipe/recipe.h"

namespace longstride {

void visit_recipe(SettingsVisitor& v, Recipe& recipe);

}  // namespace longstride
