// Recipes that were installed with the program, or are in the sources that it was built from, are found by name from
// any directory.
#pragma once
#include <string>

namespace longstride {

// Where a recipe, or a folder of recipes, is: `path` itself if it exists, or if nothing that was installed has this
// name. A build folder's program also looks into the sources above it. "recipes/quickstart/text.yaml" may also be
// called "quickstart/text". Says where it is taken from.
std::string find_recipe(const std::string& path);

}  // namespace longstride
