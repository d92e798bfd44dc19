// Recipes that were installed with the program are found by name from any directory.
#pragma once
#include <string>

namespace longstride {

// Where a recipe, or a folder of recipes, is: `path` itself if it exists, or if nothing that was installed has this
// name. "recipes/quickstart/text.yaml" may also be called "quickstart/text". Says where it is taken from.
std::string find_recipe(const std::string& path);

}  // namespace longstride
