// Any bytes read as a recipe: either a Recipe whose resolved text reads back to the same, or a UserError whose message
// is short and safe to print.
#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include <string>

#include "framework/core/errors.h"
#include "framework/core/text/printable.h"
#include "launch/recipe/recipe.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace longstride;
  try {
    const Recipe recipe = parse_recipe({reinterpret_cast<const char*>(data), size}, "fuzz");
    if (parse_recipe(recipe.resolved, "resolved").resolved != recipe.resolved) std::abort();
  } catch (const UserError& error) {
    std::string message = error.what();
    std::erase(message, '\n');
    if (message.size() > 16384 || printable(message) != message) std::abort();
  }
  return 0;
}
