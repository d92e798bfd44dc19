// Checks on settings that the range of a single key cannot express: keys that must agree with each other.
#pragma once
#include <fmt/format.h>

#include <initializer_list>
#include <string>
#include <utility>

namespace longstride {

// Collects mistakes, so that all of them are reported at once. Keys are dotted, such as "model.layers".
class SettingsChecker {
 public:
  virtual ~SettingsChecker() = default;
  // True if these keys, their parents and their contents are free of mistakes. Call it before a check reads them, so
  // that no mistake is reported twice.
  virtual bool none_in(std::initializer_list<const char*> keys) const = 0;
  // Where the key is written: 2 with --set, 1 in the recipe, 0 in its base or nowhere. A higher one overrides a lower.
  virtual int level_of(const std::string& key) const = 0;
  // "FILE:LINE: `text`", with the line of `key`.
  template <class... Args>
  void refuse(const std::string& key, fmt::format_string<Args...> text, Args&&... args) {
    add(key, fmt::format(text, std::forward<Args>(args)...));
  }

 protected:
  virtual void add(const std::string& key, const std::string& sentence) = 0;
};

}  // namespace longstride
