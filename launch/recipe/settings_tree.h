// YAML as a tree that records where every value came from: a line of a file, or a --set on the command line.
#pragma once
#include <string>
#include <utility>
#include <vector>

namespace longstride {

struct Setting {
  enum class Kind { null, scalar, list, map };
  Kind kind = Kind::null;
  std::string where;  // "recipes/mine.yaml:14" or "--set model.layers=0"
  std::string scalar;
  bool quoted = false;  // a quoted scalar is text, never a number
  std::string whole;    // value of a --set as it was typed, which keys of text take
  std::vector<Setting> items;
  std::vector<std::pair<std::string, Setting>> entries;

  Setting* find(const std::string& key);
  const Setting* find(const std::string& key) const;
  std::string text() const;  // as written, shortened, for messages

  // Defined where the type is complete, because it contains itself.
  Setting();
  Setting(const Setting&);
  Setting(Setting&&) noexcept;
  Setting& operator=(const Setting&);
  Setting& operator=(Setting&&) noexcept;
  ~Setting();
};

// Text for messages: on one line, cut after some 60 bytes and never within a character.
std::string shown(const std::string& text);

// The setting of a dotted key such as "model.layers"; null if there is none.
const Setting* find_setting(const Setting& root, const std::string& key);

// The location of that setting, or of the nearest enclosing section that exists.
std::string where_of(const Setting& root, const std::string& key);

// Parses one YAML document whose root is a map. UserError (`name`:line) on anything malformed, bytes that are not
// UTF-8, control characters (even escaped ones), duplicate keys, anchors, tags, several documents, and excessive
// nesting or size.
Setting parse_settings(const std::string& text, const std::string& name);

// Values of `over` replace those of `base`: maps key by key, everything else whole.
void merge_settings(Setting& base, const Setting& over);

// "model.layers=12". A list, a map or a quoted value is YAML. Anything else is the value itself, to its last character,
// and so is a list or a map for a key of text. Creates the maps on the way.
void apply_override(Setting& root, const std::string& assignment);

// The candidate with the fewest edits from `word`, or empty if none is near.
std::string nearest(const std::string& word, const std::vector<std::string>& candidates);

}  // namespace longstride
