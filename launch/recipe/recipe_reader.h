// Fills a Recipe from a tree of settings, strictly: a visitor of recipe_schema.h. Mistakes are collected, and the
// values left as they were.
//
// Every section is visited twice: first to list its keys, so that an unknown key can be read as the one that was meant,
// then to read them.
#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "launch/recipe/recipe_mistakes.h"
#include "launch/recipe/recipe_schema.h"
#include "launch/recipe/settings_tree.h"

namespace longstride {

class RecipeReader : public SettingsVisitor {
 public:
  // Misspelt keys of `root` get their right names.
  RecipeReader(Setting& root, RecipeMistakes& mistakes) : root_(root), mistakes_(mistakes) {}
  void read(Recipe& recipe) {
    level(root_, "", [&] { visit_recipe(*this, recipe); });
    check_reasons();
  }

  bool reads() const override { return true; }
  void section(const std::string& key, Need need, bool given, const std::function<void()>& visit) override;
  void list(const std::string& key, std::vector<std::int64_t>& values, Need need) override;
  void nested_maps(const std::string& key, const std::vector<std::size_t>& sizes, Need need,
                   const std::function<void(const std::vector<std::size_t>&)>& resize,
                   const std::function<void(SettingsVisitor&, std::size_t e, std::size_t i)>& visit) override;
  void reasons(const std::string& key, std::vector<std::pair<std::string, std::string>>& out) override;

 private:
  void whole(const std::string& key, std::int64_t& value, Need need, const Range& range) override;
  void real(const std::string& key, double& value, Need need, const Range& range) override;
  void flag(const std::string& key, bool& value, Need need) override;
  void text(const std::string& key, std::string& value, Need need) override;
  void option(const std::string& key, std::size_t& chosen, Need need, const std::vector<std::string>& names,
              const OtherWords& words) override;
  void options(const std::string& key, std::vector<std::size_t>& chosen, Need need,
               const std::vector<std::string>& names, const OtherWords& words) override;
  void maps(const std::string& key, std::size_t count, Need need, const std::function<void(std::size_t)>& resize,
            const std::function<void(SettingsVisitor&, std::size_t)>& visit) override;

  struct Level {
    Setting* map;
    std::string name;  // "model.attention"
    std::vector<std::string> known;
    bool of_list = false;    // a map of a list of lists
    bool undecided = false;  // its `kind`, which says what the keys after it are, is none
  };
  void level(Setting& map, const std::string& name, const std::function<void()>& visit, bool of_list = false);
  void explain_unknown();
  void check_reasons();
  // The value of a key of the current section; null if there is none to read.
  Setting* take(const std::string& key, Need need);
  std::string dotted(const std::string& key) const;
  void must_be(const Setting& s, const std::string& name, const std::string& what);
  bool number(const Setting& s, const std::string& name, const Range& range, double& out);
  void number(const Setting& s, const std::string& name, const Range& range, std::int64_t& out);
  void refuse_choice(const Setting& s, const std::string& name, const std::vector<std::string>& names,
                     const OtherWords& words);

  Setting& root_;
  RecipeMistakes& mistakes_;
  std::vector<Level> stack_;
  bool listing_ = false;
};

}  // namespace longstride
