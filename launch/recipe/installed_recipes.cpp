#include "launch/recipe/installed_recipes.h"

#include <spdlog/spdlog.h>

#include <filesystem>

#include "framework/core/text/printable.h"

namespace longstride {

namespace fs = std::filesystem;

std::string find_recipe(const std::string& path) {
  std::error_code none;
  if (path.empty() || fs::path(path).is_absolute() || fs::exists(path, none)) return path;
  const fs::path program = fs::read_symlink("/proc/self/exe", none);
  const fs::path above = program.parent_path().parent_path();
  const fs::path shared = above / "share/longstride";                             // cmake/Install.cmake
  for (const fs::path& place : {fs::path(), shared, above, above.parent_path()})  // or a build folder of the sources
    for (const fs::path& name : {fs::path(path), "recipes" / fs::path(path)})
      for (const char* ending : {"", ".yaml"}) {
        const std::string found = (place / name).string() + ending;
        if (place.empty() && !name.string().starts_with("recipes/")) continue;  // a file of this folder has its ending
        if (!fs::exists(found, none)) continue;
        if (!place.empty()) spdlog::info("{}: is taken from {}", printable(path), printable(found));
        return found;
      }
  return path;
}

}  // namespace longstride
