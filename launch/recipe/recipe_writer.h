// Prints a Recipe with every key written out: what a run directory keeps. A visitor of recipe_schema.h.
#pragma once
#include <fmt/format.h>

#include <functional>
#include <string>
#include <vector>

#include "launch/recipe/recipe_schema.h"

namespace longstride {

class RecipeWriter {
 public:
  const std::string& text() const { return text_; }
  const std::vector<std::string>& keys() const { return keys_; }  // dotted, in order; sections left out

  void section(const std::string& key, Need, bool given, const std::function<void()>& visit) {
    const std::string before = text_;
    line(key, "");
    const std::string outer = prefix_;
    prefix_ += key + ".";
    ++depth_;
    visit();
    --depth_;
    prefix_ = outer;
    if (!given) text_ = before;
  }
  void field(const std::string& key, std::int64_t& v, Need, const Range&) { leaf(key, fmt::format("{}", v)); }
  void field(const std::string& key, std::uint64_t& v, Need, const Range&) { leaf(key, fmt::format("{}", v)); }
  void field(const std::string& key, int& v, Need, const Range&) { leaf(key, fmt::format("{}", v)); }
  void field(const std::string& key, double& v, Need, const Range&) { leaf(key, fmt::format("{}", v)); }
  void field(const std::string& key, bool& v, Need) { leaf(key, v ? "true" : "false"); }
  void field(const std::string& key, std::string& v, Need) { leaf(key, quoted(v)); }
  template <class T>
  void choice(const std::string& key, T& v, Need, const Choices<T>& choices) {
    leaf(key, name_in(v, choices));
  }
  void list(const std::string& key, std::vector<kernels::PartKind>& values, Need) {
    std::string out;
    for (kernels::PartKind v : values) out += (out.empty() ? "" : ", ") + name_in(v, part_names());
    leaf(key, "[" + out + "]");
  }
  void list(const std::string& key, std::vector<std::int64_t>& values, Need) {
    std::string out;
    for (std::int64_t v : values) out += fmt::format("{}{}", out.empty() ? "" : ", ", v);
    leaf(key, "[" + out + "]");
  }
  template <class T, class F>
  void maps(const std::string& key, std::vector<T>& values, Need, const F& visit) {
    std::string out;
    for (T& value : values) {
      RecipeWriter item;
      visit(item, value);
      std::string inside = item.text_.substr(0, item.text_.size() - 1);  // lines of "key: value"
      for (std::size_t at = 0; (at = inside.find('\n', at)) != std::string::npos;) inside.replace(at, 1, ", ");
      out += fmt::format("{}{{{}}}", out.empty() ? "" : ", ", inside);
    }
    leaf(key, "[" + out + "]");
  }
  void reasons(const std::string& key, std::vector<std::pair<std::string, std::string>>& values) {
    keys_.push_back(prefix_ + key);
    if (values.empty()) return;
    line(key, "");
    ++depth_;
    for (const auto& [name, reason] : values) line(name, quoted(reason));
    --depth_;
  }

 private:
  template <class T>
  static std::string name_in(const T& value, const Choices<T>& choices) {
    for (const auto& [name, v] : choices)
      if (v == value) return name;
    return "";
  }
  // Double-quoted YAML: any bytes come back as they were.
  static std::string quoted(const std::string& s) {
    std::string out = "\"";
    for (char c : s) {
      const auto byte = static_cast<unsigned char>(c);
      if (c == '"' || c == '\\')
        out += std::string("\\") + c;
      else if (byte < 0x20)
        out += fmt::format("\\x{:02x}", byte);
      else
        out += c;
    }
    return out + "\"";
  }
  void leaf(const std::string& key, const std::string& value) {
    keys_.push_back(prefix_ + key);
    line(key, value);
  }
  void line(const std::string& key, const std::string& value) {
    text_ +=
        std::string(static_cast<std::size_t>(2 * depth_), ' ') + key + ":" + (value.empty() ? "" : " " + value) + "\n";
  }

  std::string text_, prefix_;
  std::vector<std::string> keys_;
  int depth_ = 0;
};

}  // namespace longstride
