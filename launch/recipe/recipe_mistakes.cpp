#include "launch/recipe/recipe_mistakes.h"

#include <algorithm>

#include "framework/core/errors.h"

namespace longstride {
namespace {

constexpr std::size_t most_shown = 20;

// "model.attention" is in "model", and holds "model.attention.stride".
bool overlap(const std::string& a, const std::string& b) {
  const auto in = [](const std::string& inner, const std::string& outer) {
    return inner == outer || inner.starts_with(outer + ".");
  };
  return in(a, b) || in(b, a);
}

}  // namespace

void RecipeMistakes::add(const std::string& key, const std::string& sentence) {
  ++count_;
  if (sentences_.size() < most_shown) sentences_.push_back(sentence);
  if (std::find(keys_.begin(), keys_.end(), key) == keys_.end()) keys_.push_back(key);
}

bool RecipeMistakes::none_in(std::initializer_list<const char*> keys) const {
  return std::none_of(keys.begin(), keys.end(), [&](const char* key) {
    return std::any_of(keys_.begin(), keys_.end(), [&](const std::string& bad) { return overlap(bad, key); });
  });
}

void RecipeMistakes::refuse(const std::string& recipe) const {
  if (count_ == 0) return;
  if (count_ == 1) throw UserError(sentences_.front());
  std::string text = fmt::format("{}: {} mistakes:", recipe, count_);
  for (const std::string& sentence : sentences_) text += "\n  " + sentence;
  if (count_ > sentences_.size()) text += fmt::format("\n  and {} more", count_ - sentences_.size());
  throw UserError(text);
}

}  // namespace longstride
