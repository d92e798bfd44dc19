// How a struct of settings declares its recipe keys, once: each key's name, where its value goes, whether it is
// required, and what it may be. The reader of recipes fills the struct, the writer prints it, tests list the keys.
#pragma once
#include <concepts>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace longstride {

enum class Need : std::uint8_t { required, optional };

// The values that a number may have, and how messages put it: "must be <text>", with the limit if the value exceeds it.
struct Range {
  double least = -std::numeric_limits<double>::infinity();
  double most = std::numeric_limits<double>::infinity();
  bool open_least = false, open_most = false;
  const char* text = "a number";
};

namespace ranges {
inline constexpr Range positive{1, 9e15, false, false, "a positive whole number"};
inline constexpr Range not_negative{0, 9e15, false, false, "0 or a positive whole number"};
inline constexpr Range positive_real{0, 1e12, true, false, "a number above 0"};
inline constexpr Range not_negative_real{0, 1e12, false, false, "0 or a positive number"};
inline constexpr Range fraction{0, 1, false, true, "a number from 0 up to but not including 1"};
inline constexpr Range positions{1, 1 << 24, false, false, "a positive number of positions"};
// Models beyond these limits could not be trained, and products of several would overflow 64 bits.
inline constexpr Range layers{1, 4096, false, false, "a positive whole number"};
inline constexpr Range width{1, 1 << 16, false, false, "a positive whole number"};
}  // namespace ranges

template <class T>
using Choices = std::vector<std::pair<std::string, T>>;
// Words that users write instead of a choice, each with the choices that it stands for: {"strided", "[local, column]"}.
using OtherWords = std::vector<std::pair<std::string, std::string>>;

class SettingsVisitor {
 public:
  virtual ~SettingsVisitor() = default;

  // True if the visitor reads values into the settings; otherwise nothing in them may change.
  virtual bool reads() const = 0;
  // A map; visit() visits its keys. given: whether there is something to write. Reading visits a map that is there,
  // writing visits every map.
  virtual void section(const std::string& key, Need need, bool given, const std::function<void()>& visit) = 0;
  void field(const std::string& key, std::integral auto& value, Need need, const Range& range) {
    auto number = static_cast<std::int64_t>(value);
    whole(key, number, need, range);
    value = static_cast<std::remove_reference_t<decltype(value)>>(number);
  }
  void field(const std::string& key, double& value, Need need, const Range& range) { real(key, value, need, range); }
  void field(const std::string& key, bool& value, Need need) { flag(key, value, need); }
  void field(const std::string& key, std::string& value, Need need) { text(key, value, need); }
  template <class T>
  void choice(const std::string& key, T& value, Need need, const Choices<T>& choices, const OtherWords& words = {}) {
    std::size_t chosen = index_of(value, choices);
    option(key, chosen, need, names_of(choices), words);
    if (chosen < choices.size()) value = choices[chosen].second;
  }
  // Lists of choices, of whole numbers or of maps. A single value needs no brackets; f(visitor, value) visits a map.
  template <class T>
  void list(const std::string& key, std::vector<T>& values, Need need, const Choices<T>& choices,
            const OtherWords& words) {
    std::vector<std::size_t> chosen;
    for (const T& value : values) chosen.push_back(index_of(value, choices));
    options(key, chosen, need, names_of(choices), words);
    values.clear();
    for (const std::size_t i : chosen) values.push_back(choices[i].second);
  }
  virtual void list(const std::string& key, std::vector<std::int64_t>& values, Need need) = 0;
  template <class T, class F>
  void maps(const std::string& key, std::vector<T>& values, Need need, const F& f) {
    maps(
        key, values.size(), need, [&](std::size_t count) { values.assign(count, T{}); },
        [&](SettingsVisitor& visitor, std::size_t i) { f(visitor, values[i]); });
  }
  // A list whose entries are maps, or lists of maps: sizes[e] of entry e, 1 for a map by itself. Its keys are
  // "key.e.name" and "key.e.i.name". Nothing is written of an empty list. Calls resize(sizes) when the list is read,
  // then visit(visitor, e, i) for each of its maps.
  virtual void nested_maps(const std::string& key, const std::vector<std::size_t>& sizes, Need need,
                           const std::function<void(const std::vector<std::size_t>&)>& resize,
                           const std::function<void(SettingsVisitor&, std::size_t e, std::size_t i)>& visit) = 0;
  // A map from dotted keys of the recipe to sentences.
  virtual void reasons(const std::string& key, std::vector<std::pair<std::string, std::string>>& values) = 0;

 protected:
  virtual void whole(const std::string& key, std::int64_t& value, Need need, const Range& range) = 0;
  virtual void real(const std::string& key, double& value, Need need, const Range& range) = 0;
  virtual void flag(const std::string& key, bool& value, Need need) = 0;
  virtual void text(const std::string& key, std::string& value, Need need) = 0;
  // An index into names. `names.size()` means none of them, and is not written.
  virtual void option(const std::string& key, std::size_t& chosen, Need need, const std::vector<std::string>& names,
                      const OtherWords& words) = 0;
  virtual void options(const std::string& key, std::vector<std::size_t>& chosen, Need need,
                       const std::vector<std::string>& names, const OtherWords& words) = 0;
  // Calls resize(count) when the list is read, then visit(visitor, i) for each of its maps.
  virtual void maps(const std::string& key, std::size_t count, Need need,
                    const std::function<void(std::size_t)>& resize,
                    const std::function<void(SettingsVisitor&, std::size_t)>& visit) = 0;

 private:
  template <class T>
  static std::size_t index_of(const T& value, const Choices<T>& choices) {
    std::size_t i = 0;
    while (i < choices.size() && !(choices[i].second == value)) ++i;
    return i;
  }
  template <class T>
  static std::vector<std::string> names_of(const Choices<T>& choices) {
    std::vector<std::string> names;
    for (const auto& [name, value] : choices) names.push_back(name);
    return names;
  }
};

// Settings of one of several kinds: those of another kind begin with its defaults. The key `kind` comes first, because
// it determines the others.
template <class Settings, class Pointer>
void visit_kind(SettingsVisitor& v, const std::vector<std::unique_ptr<Settings> (*)()>& kinds, Pointer& settings,
                Need need, const OtherWords& words = {}) {
  Choices<std::size_t> names;
  for (const auto& make : kinds) names.emplace_back(make()->kind(), names.size());
  std::size_t kind = 0;
  while (names[kind].first != settings->kind()) ++kind;
  const std::size_t before = kind;
  v.choice("kind", kind, need, names, words);
  if (kind != before) settings = kinds[kind]();
  settings->visit(v);
}

}  // namespace longstride
