// The mistakes in a recipe, collected while it is read so that all are reported at once.
#pragma once
#include <cstddef>
#include <initializer_list>
#include <string>
#include <vector>

namespace longstride {

class RecipeMistakes {
 public:
  // `key`, such as "model.layers", has no valid value; `sentence` begins with its location.
  void add(const std::string& key, const std::string& sentence);
  // True if these keys, their sections and their contents are free of mistakes. A check of several keys calls this
  // first, so that no mistake is reported twice.
  bool none_in(std::initializer_list<const char*> keys) const;
  // UserError if there are any: a single one by itself, several as a list of the first 20.
  void refuse(const std::string& recipe) const;

 private:
  std::vector<std::string> keys_, sentences_;
  std::size_t count_ = 0;
};

}  // namespace longstride
