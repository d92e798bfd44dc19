// Fills a Recipe from a tree of settings, strictly: a visitor of recipe_schema.h.
#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "launch/recipe_schema.h"
#include "launch/settings_tree.h"

namespace longstride {

class RecipeReader {
 public:
  explicit RecipeReader(const Setting& root) { stack_.push_back({&root, "", {}}); }

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
    const std::vector<Setting>* items = list_of_maps(key, need);
    if (items == nullptr) return;
    out.clear();
    for (const Setting& item : *items) {
      stack_.push_back({&item, dotted(key), {}});
      visit(*this, out.emplace_back());
      refuse_unknown();
      stack_.pop_back();
    }
  }
  void reasons(const std::string& key, std::vector<std::pair<std::string, std::string>>& out);
  template <class T>
  void choice(const std::string& key, T& out, Need need, const Choices<T>& choices) {
    const Setting* s = take(key, need);
    if (s != nullptr) out = one_of(*s, dotted(key), choices);
  }

  // Refuses keys that nobody asked for in the root map. Sections do so by themselves.
  void finish() { refuse_unknown(); }
  // Where a key stands, or its nearest section that is there: for checks of several keys at once.
  static std::string where(const Setting& root, const std::string& dotted_key);

 private:
  struct Level {
    const Setting* map;
    std::string name;  // "model.attention"
    std::vector<std::string> asked;
  };
  const Setting* take(const std::string& key, Need need);
  const std::vector<Setting>* list_of_maps(const std::string& key, Need need);
  std::string dotted(const std::string& key) const;
  void refuse_unknown() const;
  double number(const Setting& s, const std::string& name, const Range& range) const;
  std::int64_t whole(const Setting& s, const std::string& name, const Range& range) const;

  template <class T>
  static T one_of(const Setting& s, const std::string& name, const Choices<T>& choices) {
    std::vector<std::string> names;
    for (const auto& [text, value] : choices) {
      if (s.kind == Setting::Kind::scalar && s.scalar == text) return value;
      names.push_back(text);
    }
    refuse_choice(s, name, names);
  }
  [[noreturn]] static void refuse_choice(const Setting& s, const std::string& name,
                                         const std::vector<std::string>& names);

  std::vector<Level> stack_;
};

}  // namespace longstride
