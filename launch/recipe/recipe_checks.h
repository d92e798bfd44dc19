// Checks of a recipe beyond the range of a single key.
#pragma once
#include <fmt/format.h>

#include <utility>

#include "framework/core/settings/checker.h"
#include "launch/recipe/recipe.h"
#include "launch/recipe/recipe_mistakes.h"
#include "launch/recipe/settings_tree.h"

namespace longstride {

// Checks keys that must agree with each other, and fills in what the model takes from the data.
void check_recipe(const Setting& root, Recipe& recipe, RecipeMistakes& mistakes);

// Refuses settings with which training does nothing or diverges, each with the value to set.
void check_training_can_work(const Setting& root, const Recipe& recipe, RecipeMistakes& mistakes);

// The checks of one recipe.
class RecipeChecker : public SettingsChecker {
 public:
  RecipeChecker(const Setting& root, RecipeMistakes& mistakes) : root_(root), mistakes_(mistakes) {}

  const Setting& root() const { return root_; }
  bool none_in(std::initializer_list<const char*> keys) const override { return mistakes_.none_in(keys); }
  int level_of(const std::string& key) const override;
  bool sets(const std::string& key) const { return find_setting(root_, key) != nullptr; }
  // A mistake in `key`, found at `where`.
  template <class... Args>
  void refuse_at(const std::string& where, const std::string& key, fmt::format_string<Args...> text, Args&&... args) {
    mistakes_.add(key, where + ": " + fmt::format(text, std::forward<Args>(args)...));
  }

 private:
  void add(const std::string& key, const std::string& sentence) override {
    mistakes_.add(key, where_of(root_, key) + ": " + sentence);
  }

  const Setting& root_;
  RecipeMistakes& mistakes_;
};

}  // namespace longstride
