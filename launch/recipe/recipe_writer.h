// Prints a Recipe with every key written out, for the run directory. A visitor of recipe_schema.h.
#pragma once
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <functional>
#include <string>
#include <vector>

#include "launch/recipe/recipe_schema.h"
#include "launch/recipe/settings_writer.h"

namespace longstride {

class RecipeWriter : public SettingsVisitor {
 public:
  const std::string& text() const { return text_; }
  // Dotted, in order; of sections only those without keys.
  const std::vector<std::string>& keys() const { return keys_; }

  bool reads() const override { return false; }
  void section(const std::string& key, Need, bool given, const std::function<void()>& visit) override {
    const std::string before = text_;
    const std::string outer = prefix_;
    const std::size_t known = keys_.size();
    prefix_ += key + ".";
    if (flow_) {
      text_.clear();
      visit();
      const std::string inside = text_;
      text_ = before;
      line(key, "{" + inside + "}");
    } else {
      line(key, "");
      ++depth_;
      visit();
      --depth_;
    }
    prefix_ = outer;
    if (keys_.size() == known) keys_.push_back(prefix_ + key);  // a map whose keys are data
    if (!given) text_ = before;
  }
  void list(const std::string& key, std::vector<std::int64_t>& values, Need) override {
    leaf(key, fmt::format("[{}]", fmt::join(values, ", ")));
  }
  void nested_maps(const std::string& key, const std::vector<std::size_t>& sizes, Need,
                   const std::function<void(const std::vector<std::size_t>&)>&,
                   const std::function<void(SettingsVisitor&, std::size_t e, std::size_t i)>& visit) override {
    if (sizes.empty()) {
      keys_.push_back(prefix_ + key);
      return;
    }
    std::vector<std::string> entries;
    for (std::size_t e = 0; e < sizes.size(); ++e) {
      std::vector<std::string> items;
      for (std::size_t i = 0; i < sizes[e]; ++i)
        items.push_back(flow([&](SettingsVisitor& item) { visit(item, e, i); }));
      entries.push_back(sizes[e] > 1 ? fmt::format("[{}]", fmt::join(items, ", ")) : items.front());
    }
    leaf(key, fmt::format("[{}]", fmt::join(entries, ", ")));
  }
  void reasons(const std::string& key, std::vector<std::pair<std::string, std::string>>& values) override {
    keys_.push_back(prefix_ + key);
    if (values.empty()) return;
    line(key, "");
    ++depth_;
    for (const auto& [name, reason] : values) line(name, quoted_yaml(reason));
    --depth_;
  }

 private:
  void whole(const std::string& key, std::int64_t& v, Need, const Range&) override { leaf(key, fmt::format("{}", v)); }
  void real(const std::string& key, double& v, Need, const Range&) override { leaf(key, fmt::format("{}", v)); }
  void flag(const std::string& key, bool& v, Need) override { leaf(key, v ? "true" : "false"); }
  void text(const std::string& key, std::string& v, Need) override { leaf(key, quoted_yaml(v)); }
  void option(const std::string& key, std::size_t& chosen, Need, const std::vector<std::string>& names,
              const OtherWords&) override {
    leaf(key, names.at(chosen));
  }
  void options(const std::string& key, std::vector<std::size_t>& chosen, Need, const std::vector<std::string>& names,
               const OtherWords&) override {
    std::vector<std::string> out;
    for (const std::size_t i : chosen) out.push_back(names.at(i));
    leaf(key, fmt::format("[{}]", fmt::join(out, ", ")));
  }
  void maps(const std::string& key, std::size_t count, Need, const std::function<void(std::size_t)>&,
            const std::function<void(SettingsVisitor&, std::size_t)>& visit) override {
    std::string out;
    for (std::size_t i = 0; i < count; ++i)
      out += (out.empty() ? "" : ", ") + flow([&](SettingsVisitor& item) { visit(item, i); });
    leaf(key, "[" + out + "]");
  }
  // A map on one line.
  static std::string flow(const std::function<void(SettingsVisitor&)>& visit) {
    RecipeWriter item;
    item.flow_ = true;
    visit(item);
    return "{" + item.text_ + "}";
  }
  void leaf(const std::string& key, const std::string& value) {
    keys_.push_back(prefix_ + key);
    line(key, value);
  }
  void line(const std::string& key, const std::string& value) {
    if (flow_) {
      text_ += (text_.empty() ? "" : ", ") + key + ": " + value;
      return;
    }
    text_ +=
        std::string(static_cast<std::size_t>(2 * depth_), ' ') + key + ":" + (value.empty() ? "" : " " + value) + "\n";
  }

  std::string text_, prefix_;
  std::vector<std::string> keys_;
  int depth_ = 0;
  bool flow_ = false;  // on one line: "key: value, key: value"
};

}  // namespace longstride
