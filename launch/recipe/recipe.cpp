#include "launch/recipe/recipe.h"

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "framework/core/errors.h"
#include "framework/core/files/first_bytes.h"
#include "framework/core/text/printable.h"
#include "launch/recipe/installed_recipes.h"
#include "launch/recipe/recipe_aliases.h"
#include "launch/recipe/recipe_checks.h"
#include "launch/recipe/recipe_reader.h"
#include "launch/recipe/recipe_writer.h"

namespace longstride {
namespace {

namespace fs = std::filesystem;

std::string read_text(const std::string& path, const std::string& prefix) {
  if (path.empty()) throw user_error("{}'' names no file; give the file of a recipe", prefix);
  std::error_code ignored;
  if (const std::string own = (fs::path(path) / "recipe.yaml").string(); fs::is_regular_file(own, ignored))
    throw user_error(
        "{}{} is the directory of a run; give its recipe, {}, and to continue that run also --run {} --resume", prefix,
        printable(path), printable(own), printable(path));
  if (fs::is_directory(path, ignored))
    throw user_error("{}{} is a directory; give the file of a recipe", prefix, printable(path));
  std::ifstream in(path, std::ios::binary);
  if (!in)
    throw user_error("{}{}: cannot be read; give the file of a recipe, such as recipes/quickstart/text.yaml", prefix,
                     printable(path));
  std::string text(std::size_t{1} << 21, '\0');  // more than the parser accepts, so that it reports a longer file
  in.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<std::size_t>(in.gcount()));
  const FileFormat format = format_of(text);
  if (format.family == FormatFamily::pointer || format.family == FormatFamily::encoding)
    throw user_error("{}{}: {}; {}", prefix, printable(path), begins_like(format), remedy_of(format));
  return text;
}

// A reason explains a value: if the value is overridden, the base's reason is dropped.
void drop_stale_reasons(Setting& base, const Setting& over) {
  if (Setting* reasons = base.find("unpublished"))
    std::erase_if(reasons->entries, [&](const auto& reason) { return find_setting(over, reason.first) != nullptr; });
}

// One level: a base has no base of its own.
void apply_base(Setting& root, const fs::path& folder) {
  const Setting* base = root.find("base");
  if (base == nullptr) return;
  if (base->kind != Setting::Kind::scalar || base->scalar.empty())
    throw user_error("{}: base is {}, but must be the file of another recipe", base->where, base->text());
  const std::string path = (folder / base->scalar).string();
  Setting below = parse_settings(read_text(path, base->where + ": base "), path);
  if (const Setting* second = below.find("base"))
    throw user_error("{}: a base has a base itself, but only one level is allowed; remove this one", second->where);
  drop_stale_reasons(below, root);
  merge_settings(below, root);
  std::erase_if(below.entries, [](const auto& entry) { return entry.first == "base"; });
  root = std::move(below);
}

std::string resolved_text(Recipe& r) {
  RecipeWriter writer;
  visit_recipe(writer, r);
  return writer.text();
}

// author: a recipe as somebody wrote it. run: a run's own, which was accepted when the run began.
enum class Origin : std::uint8_t { author, run };

Recipe resolve(const std::string& text, const std::string& name, const fs::path& folder,
               const std::vector<std::string>& overrides, Origin origin) {
  Setting root = parse_settings(text, name);
  if (const Setting* base = root.find("base"); base != nullptr && origin == Origin::run)
    throw user_error("{}: the recipe of a run is whole, but this one has a base", base->where);
  apply_base(root, folder);
  if (origin == Origin::run) rename_keys(root);
  RecipeMistakes mistakes;
  for (const std::string& assignment : overrides) {
    try {
      apply_override(root, assignment);
    } catch (const UserError& error) {
      mistakes.add("", error.what());
    }
  }
  Recipe r;
  RecipeReader(root, mistakes).read(r);
  check_recipe(root, r, mistakes);
  if (origin == Origin::author) check_training_can_work(root, r, mistakes);
  mistakes.refuse(name);
  r.resolved = resolved_text(r);
  return r;
}

}  // namespace

Recipe read_recipe(const std::string& name, const std::vector<std::string>& overrides) {
  const std::string path = find_recipe(name);
  return resolve(read_text(path, ""), path, fs::path(path).parent_path(), overrides, Origin::author);
}

Setting settings_of_recipe(const std::string& name) {
  const std::string path = find_recipe(name);
  Setting root = parse_settings(read_text(path, ""), path);
  apply_base(root, fs::path(path).parent_path());
  return root;
}

Recipe parse_recipe(const std::string& text, const std::string& name, const std::vector<std::string>& overrides) {
  return resolve(text, name, fs::path("."), overrides, Origin::author);
}

DocumentForm document_form(const DataConfig& data) {
  const bool separate = data.documents != Documents::joined;
  return {separate, separate && data.document_positions != DocumentPositions::continued,
          data.documents == Documents::rows};
}

Recipe with_model(Recipe recipe, std::shared_ptr<ModelConfig> model) {
  recipe.model = std::move(model);
  recipe.resolved = resolved_text(recipe);
  return recipe;
}

Recipe recipe_of_run(const std::string& text, const std::string& name) {
  return resolve(text, name, fs::path("."), {}, Origin::run);
}

}  // namespace longstride
