#include "launch/recipe/settings_tree.h"

#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <charconv>
#include <numeric>
#include <sstream>

#include "framework/core/errors.h"
#include "framework/core/text/printable.h"
#include "framework/core/text/utf8.h"

namespace longstride {
namespace {

constexpr std::size_t largest_file = 1 << 20;
constexpr int deepest = 16;
constexpr std::size_t most_values = 10000;

constexpr const char* override_flag = "--set ";

// FILE:LINE, with lines counted from 1; a --set has no line.
std::string place(const std::string& name, std::size_t line) {
  return name.starts_with(override_flag) ? name : name + ":" + std::to_string(line);
}

std::string place(const std::string& name, const YAML::Mark& mark) {
  return place(name, static_cast<std::size_t>(mark.line + 1));
}

// Tabs and line ends are text. Other control characters, literal or as an escape like "\e", would corrupt a terminal,
// JSON or a file name.
bool is_text(const std::string& text, std::size_t at, std::size_t length) {
  return length > 0 && (!is_control(text, at) || text[at] == '\n' || text[at] == '\t' || text[at] == '\r');
}

// Refuses what is not text, naming its line; `first` is the line of the first character.
void check_text(const std::string& text, const std::string& name, std::size_t first) {
  std::size_t line = first;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t length = utf8_length(text, at);
    if (!is_text(text, at, length))
      throw user_error("{}: {} {}; a recipe is YAML text", place(name, line),
                       length > 0 ? fmt::format("the control character {}", printable(text.substr(at, length)))
                                  : fmt::format("byte {:#04x}", static_cast<unsigned char>(text[at])),
                       length > 0 ? "occurs here" : "is not UTF-8");
    if (text[at] == '\n') ++line;
    at += length;
  }
}

// Builds the tree from the parser's events rather than from its nodes: events show anchors, aliases, tags and
// duplicate keys before anything is expanded.
class Builder : public YAML::EventHandler {
 public:
  explicit Builder(std::string name) : name_(std::move(name)) {}
  Setting take() { return std::move(root_); }

  void OnDocumentStart(const YAML::Mark&) override {}
  void OnDocumentEnd() override {}
  void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    add(leaf(mark, "", anchor, Setting::Kind::null));
  }
  void OnAlias(const YAML::Mark& mark, YAML::anchor_t) override {
    throw user_error("{}: this is an alias; recipes have no anchors or aliases, so write the value out", at(mark));
  }
  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                const std::string& value) override {
    refuse_tag(mark, tag);
    check_text(value, name_, static_cast<std::size_t>(mark.line + 1));
    Setting s = leaf(mark, tag, anchor, Setting::Kind::scalar);
    s.scalar = value;
    s.quoted = tag == "!";
    if (!s.quoted && (value.empty() || value == "~" || value == "null")) s.kind = Setting::Kind::null;
    add(std::move(s));
  }
  void OnSequenceStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                       YAML::EmitterStyle::value) override {
    refuse_tag(mark, tag);
    open(leaf(mark, tag, anchor, Setting::Kind::list));
  }
  void OnSequenceEnd() override { close(); }
  void OnMapStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                  YAML::EmitterStyle::value) override {
    refuse_tag(mark, tag);
    open(leaf(mark, tag, anchor, Setting::Kind::map));
  }
  void OnMapEnd() override { close(); }

 private:
  struct Open {
    Setting setting;
    std::string key;
    bool has_key = false;
  };

  std::string at(const YAML::Mark& mark) const { return place(name_, mark); }
  void refuse_tag(const YAML::Mark& mark, const std::string& tag) const {
    if (!tag.empty() && tag != "?" && tag != "!")
      throw user_error("{}: this has the tag {}; recipes have no tags, so remove it", at(mark), shown(tag));
  }
  Setting leaf(const YAML::Mark& mark, const std::string&, YAML::anchor_t anchor, Setting::Kind kind) {
    if (anchor != 0)
      throw user_error("{}: this is an anchor; recipes have no anchors or aliases, so remove it", at(mark));
    if (++values_ > most_values)
      throw user_error("{}: more than {} values; this is not a recipe", at(mark), most_values);
    Setting s;
    s.kind = kind;
    s.where = at(mark);
    return s;
  }
  void open(Setting s) {
    if (static_cast<int>(stack_.size()) >= deepest)
      throw user_error("{}: nested deeper than {} levels", s.where, deepest);
    stack_.push_back({std::move(s), {}, false});
  }
  void close() {
    Setting done = std::move(stack_.back().setting);
    stack_.pop_back();
    add(std::move(done));
  }
  void add(Setting s) {
    if (stack_.empty()) {
      root_ = std::move(s);
      return;
    }
    Open& top = stack_.back();
    if (top.setting.kind == Setting::Kind::list) {
      top.setting.items.push_back(std::move(s));
    } else if (!top.has_key) {
      if (s.kind != Setting::Kind::scalar) throw user_error("{}: a key must be a word, as in layers: 12", s.where);
      if (const Setting* first = top.setting.find(s.scalar))
        throw user_error("{}: the key '{}' is given twice, first at {}; remove one", s.where, shown(s.scalar),
                         first->where);
      top.key = s.scalar;
      top.has_key = true;
      top.setting.entries.emplace_back(s.scalar, s);  // placeholder until the value comes; keeps the key's line
    } else {
      Setting& value = top.setting.entries.back().second;
      if (s.kind == Setting::Kind::map || s.kind == Setting::Kind::null) s.where = value.where;  // the key's line
      value = std::move(s);
      top.has_key = false;
    }
  }

  std::string name_;
  std::vector<Open> stack_;
  Setting root_;
  std::size_t values_ = 0;
};

// The first line that a tab indents, of the first `last`; 0: none.
std::size_t line_with_tab(const std::string& text, std::size_t last) {
  std::istringstream lines(text);
  std::string line;
  for (std::size_t at = 1; at <= last && std::getline(lines, line); ++at) {
    const std::size_t first = std::min(line.find_first_not_of(" \t"), line.size());
    if (line.find('\t') < first && line[first] != '#') return at;
  }
  return 0;
}

Setting parse(const std::string& text, const std::string& name) {
  if (text.size() > largest_file)
    throw user_error("{}: has more than {} bytes, the most a recipe can have", name, largest_file);
  if (text.find('\0') != std::string::npos) throw user_error("{}: holds zero bytes; a recipe is YAML text", name);
  check_text(text, name, 1);
  try {
    std::istringstream in(text);
    YAML::Parser parser(in);
    Builder builder(name);
    if (!parser.HandleNextDocument(builder)) return {};
    Setting root = builder.take();
    Builder second(name);
    if (parser.HandleNextDocument(second))
      throw user_error("{}: holds more than one YAML document; a recipe is one, so remove what follows the line ---",
                       name);
    return root;
  } catch (const YAML::Exception& e) {
    if (const std::size_t line = line_with_tab(text, static_cast<std::size_t>(e.mark.line + 2)); line > 0)
      throw user_error("{}: is indented with a tab, which YAML does not allow; use spaces", place(name, line));
    throw user_error("{}: not YAML: {}", place(name, e.mark), printable(e.msg));  // yaml-cpp may quote half a character
  }
}

// The setting that a --set assigns, at `where`.
Setting assigned(const std::string& text, const std::string& where) {
  constexpr const char* blanks = " \t\r\n";
  const std::size_t begin = std::min(text.find_first_not_of(blanks), text.size());
  const std::string value = text.substr(begin, text.find_last_not_of(blanks) + 1 - begin);
  check_text(value, where, 1);
  Setting s;
  try {
    s = parse(value, where);
    const bool nothing = value.empty() || value == "~" || value == "null" || value == "Null" || value == "NULL";
    if (s.kind == Setting::Kind::null && !nothing) s.kind = Setting::Kind::scalar;
  } catch (const UserError&) {
    s.kind = Setting::Kind::scalar;
  }
  if (s.kind == Setting::Kind::scalar && !s.quoted) s.scalar = value;
  s.whole = s.quoted ? s.scalar : value;
  return s;
}

// The setting of a key in a map, or of a number in a list.
const Setting* within(const Setting& s, const std::string& key) {
  if (s.kind != Setting::Kind::list) return s.find(key);
  std::size_t index = 0;
  const auto read = std::from_chars(key.data(), key.data() + key.size(), index);
  return read.ec == std::errc{} && read.ptr == key.data() + key.size() && index < s.items.size() ? &s.items[index]
                                                                                                 : nullptr;
}

// Follows a dotted key from `root` as far as there are settings; returns whether it reached the end.
bool follow(const Setting& root, const std::string& key, const Setting*& last) {
  last = &root;
  for (std::size_t begin = 0; begin <= key.size();) {
    const std::size_t end = std::min(key.find('.', begin), key.size());
    const Setting* next = within(*last, key.substr(begin, end - begin));
    if (next == nullptr) return false;
    last = next;
    begin = end + 1;
  }
  return true;
}

// The number of letters to insert, remove or replace, or of neighbours to swap.
std::size_t edits(const std::string& a, const std::string& b) {
  std::vector<std::size_t> before, last, row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 1; i <= a.size(); ++i) {
    before = std::move(last);
    last = row;
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const bool same = a[i - 1] == b[j - 1];
      row[j] = std::min({last[j] + 1, row[j - 1] + 1, last[j - 1] + (same ? 0 : 1)});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) row[j] = std::min(row[j], before[j - 2] + 1);
    }
  }
  return row.back();
}

}  // namespace

Setting::Setting() = default;
Setting::Setting(const Setting&) = default;
Setting::Setting(Setting&&) noexcept = default;
Setting& Setting::operator=(const Setting&) = default;
Setting& Setting::operator=(Setting&&) noexcept = default;
Setting::~Setting() = default;

Setting* Setting::find(const std::string& key) {
  for (auto& [name, value] : entries)
    if (name == key) return &value;
  return nullptr;
}

const Setting* Setting::find(const std::string& key) const { return const_cast<Setting*>(this)->find(key); }

std::string Setting::text() const {
  switch (kind) {
    case Kind::null:
      return "empty";
    case Kind::list:
      return items.empty() ? "an empty list" : "a list";
    case Kind::map:
      return "a map";
    case Kind::scalar:
      break;
  }
  return quoted ? fmt::format("'{}'", shown(scalar)) : shown(scalar);
}

const Setting* find_setting(const Setting& root, const std::string& key) {
  const Setting* last = nullptr;
  return follow(root, key, last) ? last : nullptr;
}

std::string where_of(const Setting& root, const std::string& key) {
  const Setting* last = nullptr;
  follow(root, key, last);
  return last->where;
}

std::string shown(const std::string& text) {
  constexpr std::size_t most = 60, dots = 3;
  const std::string whole = printable(text.substr(0, most + 1));
  if (whole.size() <= most) return whole;
  std::size_t end = 0;
  while (end + utf8_length(whole, end) <= most - dots) end += utf8_length(whole, end);
  return whole.substr(0, end) + "...";
}

Setting parse_settings(const std::string& text, const std::string& name) {
  Setting root = parse(text, name);
  if (root.kind != Setting::Kind::map)
    throw user_error("{}:1: a recipe is a map of name, data, model and train, but this is {}", name,
                     root.kind == Setting::Kind::null ? "empty" : root.text());
  return root;
}

void merge_settings(Setting& base, const Setting& over) {
  if (base.kind != Setting::Kind::map || over.kind != Setting::Kind::map) {
    base = over;
    return;
  }
  base.where = over.where;
  for (const auto& [key, value] : over.entries) {
    if (Setting* old = base.find(key))
      merge_settings(*old, value);
    else
      base.entries.emplace_back(key, value);
  }
}

void apply_override(Setting& root, const std::string& assignment) {
  const std::string where = override_flag + printable(assignment);
  const std::size_t equals = assignment.find('=');
  if (equals == std::string::npos || equals == 0)
    throw user_error("{}: must be KEY=VALUE, as in --set model.layers=12", where);
  Setting value = assigned(assignment.substr(equals + 1), where);
  const auto relocate = [&](auto& self, Setting& s) -> void {
    s.where = where;
    for (Setting& item : s.items) self(self, item);
    for (auto& entry : s.entries) self(self, entry.second);
  };
  relocate(relocate, value);
  Setting* at = &root;
  std::string rest = assignment.substr(0, equals);
  for (;;) {
    if (at->kind == Setting::Kind::list)
      throw user_error("{}: '{}' is within a list, which --set sets whole, as in --set 'KEY=[..]'; or change the file",
                       where, rest);
    if (at->kind != Setting::Kind::map && at->kind != Setting::Kind::null)
      throw user_error(
          "{}: '{}' is a key below a value that has no keys; name a key of a section, as in --set "
          "model.layers=12",
          where, rest);
    at->kind = Setting::Kind::map;
    const std::size_t dot = rest.find('.');
    const std::string key = rest.substr(0, dot);
    if (key.empty()) throw user_error("{}: has an empty key; write it as in --set model.layers=12", where);
    if (at == &root && key == "base")
      throw user_error("{}: base can only be set in the file, because what it names is read first", where);
    Setting* next = at->find(key);
    if (next == nullptr) {
      at->entries.emplace_back(key, Setting{});
      next = &at->entries.back().second;
      next->where = where;
    }
    if (dot == std::string::npos) {
      *next = value;
      return;
    }
    at = next;
    rest = rest.substr(dot + 1);
  }
}

std::string nearest(const std::string& word, const std::vector<std::string>& candidates) {
  constexpr std::size_t longest_word = 64;  // no candidate is longer, and the work grows with the length
  std::string best;
  if (word.size() > longest_word) return best;
  std::size_t fewest = std::max<std::size_t>(2, word.size() / 3) + 1;
  for (const std::string& candidate : candidates)
    if (const std::size_t distance = edits(word, candidate); distance < fewest) {
      fewest = distance;
      best = candidate;
    }
  return best;
}

}  // namespace longstride
