// What is wrong with a recipe, collected while it is read, so that all of it is said at once.
#pragma once
#include <cstddef>
#include <initializer_list>
#include <string>
#include <vector>

namespace longstride {

class RecipeMistakes {
 public:
  // `key`, as "model.layers", has no value to rely on; `sentence` begins with where it stands.
  void add(const std::string& key, const std::string& sentence);
  // Whether these keys, what holds them and what they hold are free of mistakes: what a check of several keys asks
  // first, so that no mistake is reported twice.
  bool none_in(std::initializer_list<const char*> keys) const;
  // UserError when there are any. One stands alone; several stand below each other, a line each, the first 20.
  void refuse(const std::string& recipe) const;

 private:
  std::vector<std::string> keys_, sentences_;
  std::size_t count_ = 0;
};

}  // namespace longstride
