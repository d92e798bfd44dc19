// Any bytes taken for a recipe: either a Recipe whose resolved text reads back to the same, or a UserError.
#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include "framework/core/errors.h"
#include "launch/recipe.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace longstride;
  try {
    const Recipe recipe = parse_recipe({reinterpret_cast<const char*>(data), size}, "fuzz");
    if (parse_recipe(recipe.resolved, "resolved").resolved != recipe.resolved) std::abort();
  } catch (const UserError&) {
  }
  return 0;
}
