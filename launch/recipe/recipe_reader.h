// Fills a Recipe from a tree of settings, strictly: a visitor of recipe_schema.h. What is wrong is collected, and the
// value left as it was.
//
// Every section is visited twice: first only its keys are listed, so that a key which is not among them can be taken
// for the one it was meant to be, and then read.
#pragma once
#include <cmath>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "launch/recipe/recipe_mistakes.h"
#include "launch/recipe/recipe_schema.h"
#include "launch/recipe/settings_tree.h"

namespace longstride {

class RecipeReader {
 public:
  // Misspelt keys of `root` get their right names.
  RecipeReader(Setting& root, RecipeMistakes& mistakes) : root_(root), mistakes_(mistakes) {}
  void read(Recipe& recipe) {
    level(root_, "", [&] { visit_recipe(*this, recipe); });
    check_reasons();
  }

  void section(const std::string& key, Need need, bool given, const std::function<void()>& visit);
  void field(const std::string& key, std::int64_t& out, Need need, const Range& range);
  void field(const std::string& key, std::uint64_t& out, Need need, const Range& range);
  void field(const std::string& key, int& out, Need need, const Range& range);
  void field(const std::string& key, double& out, Need need, const Range& range);
  void field(const std::string& key, bool& out, Need need);
  void field(const std::string& key, std::string& out, Need need);
  void list(const std::string& key, std::vector<kernels::PartKind>& out, Need need);
  void list(const std::string& key, std::vector<std::int64_t>& out, Need need);
  template <class T, class F>
  void maps(const std::string& key, std::vector<T>& out, Need need, const F& visit) {
    Setting* list = list_of_maps(key, need);
    if (list == nullptr) return;
    out.clear();
    for (Setting& item : list->items) {
      T& value = out.emplace_back();
      level(item, dotted(key), [&] { visit(*this, value); });
    }
  }
  void reasons(const std::string& key, std::vector<std::pair<std::string, std::string>>& out);
  template <class T>
  void choice(const std::string& key, T& out, Need need, const Choices<T>& choices) {
    if (const Setting* s = take(key, need)) one_of(*s, dotted(key), choices, out);
  }

 private:
  struct Level {
    Setting* map;
    std::string name;  // "model.attention"
    std::vector<std::string> known;
  };
  void level(Setting& map, const std::string& name, const std::function<void()>& visit);
  void explain_unknown();
  void check_reasons();
  // The value of a key of the section at hand; null: there is none to read.
  Setting* take(const std::string& key, Need need);
  Setting* list_of_maps(const std::string& key, Need need);
  std::string dotted(const std::string& key) const;
  void must_be(const Setting& s, const std::string& name, const std::string& what);
  bool number(const Setting& s, const std::string& name, const Range& range, double& out);
  template <class T>
  void whole(const Setting& s, const std::string& name, const Range& range, T& out) {
    double value = 0;
    if (!number(s, name, range, value)) return;
    if (value != std::floor(value)) return must_be(s, name, range.text);
    out = static_cast<T>(value);
  }

  template <class T>
  void one_of(const Setting& s, const std::string& name, const Choices<T>& choices, T& out) {
    std::vector<std::string> names;
    for (const auto& [text, value] : choices) {
      if (s.kind == Setting::Kind::scalar && s.scalar == text) {
        out = value;
        return;
      }
      names.push_back(text);
    }
    refuse_choice(s, name, names);
  }
  void refuse_choice(const Setting& s, const std::string& name, const std::vector<std::string>& names);

  Setting& root_;
  RecipeMistakes& mistakes_;
  std::vector<Level> stack_;
  bool listing_ = false;
};

}  // namespace longstride
