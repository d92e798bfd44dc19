#include "launch/recipe_reader.h"

#include <fmt/ranges.h>

#include <charconv>
#include <cmath>
#include <optional>

#include "framework/core/errors.h"

namespace longstride {
namespace {

std::optional<double> number_in(const Setting& s) {
  if (s.kind != Setting::Kind::scalar || s.quoted || s.scalar.empty()) return {};
  double value = 0;
  const char* begin = s.scalar.data() + (s.scalar[0] == '+' ? 1 : 0);
  const char* end = s.scalar.data() + s.scalar.size();
  const auto result = std::from_chars(begin, end, value);
  if (result.ec != std::errc{} || result.ptr != end || !std::isfinite(value)) return {};
  return value;
}

bool within(double value, const Range& r) {
  return (r.open_least ? value > r.least : value >= r.least) && (r.open_most ? value < r.most : value <= r.most);
}

std::string allowed_text(const std::optional<double>& value, const Range& r) {
  if (!value || *value <= r.most || r.open_most) return r.text;
  return fmt::format("{}, at most {:.0f}", r.text, r.most);
}

UserError must_be(const Setting& s, const std::string& name, const std::string& what) {
  return user_error("{}: {} is {}, but must be {}", s.where, name, s.text(), what);
}

}  // namespace

std::string RecipeReader::dotted(const std::string& key) const {
  const std::string& section = stack_.back().name;
  return section.empty() ? key : section + "." + key;
}

const Setting* RecipeReader::take(const std::string& key, Need need) {
  Level& level = stack_.back();
  level.asked.push_back(key);
  const Setting* s = level.map->find(key);
  if (s != nullptr && s->kind == Setting::Kind::null)
    throw user_error("{}: {} has no value; give it one or remove the key", s->where, dotted(key));
  if (s == nullptr && need == Need::required) {
    for (const auto& [other, value] : level.map->entries)
      if (nearest(other, {key}) == key)
        throw user_error("{}: unknown key '{}'{}; did you mean '{}'?", value.where, other,
                         level.name.empty() ? "" : " in " + level.name, key);
    throw user_error("{}: {} is missing; add it (docs/recipes.md lists every key)", level.map->where, dotted(key));
  }
  return s;
}

void RecipeReader::refuse_unknown() const {
  const Level& level = stack_.back();
  for (const auto& [key, value] : level.map->entries) {
    bool known = false;
    for (const std::string& asked : level.asked) known = known || asked == key;
    if (known) continue;
    const std::string near = nearest(key, level.asked);
    throw user_error("{}: unknown key '{}'{}; {}", value.where, key, level.name.empty() ? "" : " in " + level.name,
                     near.empty() ? fmt::format("it may have {}", fmt::join(level.asked, ", "))
                                  : fmt::format("did you mean '{}'?", near));
  }
}

void RecipeReader::section(const std::string& key, Need need, bool, const std::function<void()>& visit) {
  const Setting* s = take(key, need);
  if (s == nullptr) return;
  if (s->kind != Setting::Kind::map) throw must_be(*s, dotted(key), "a map of keys and values");
  stack_.push_back({s, dotted(key), {}});
  visit();
  refuse_unknown();
  stack_.pop_back();
}

double RecipeReader::number(const Setting& s, const std::string& name, const Range& range) const {
  const std::optional<double> value = number_in(s);
  if (!value || !within(*value, range)) throw must_be(s, name, allowed_text(value, range));
  return *value;
}

std::int64_t RecipeReader::whole(const Setting& s, const std::string& name, const Range& range) const {
  const double value = number(s, name, range);
  if (value != std::floor(value)) throw must_be(s, name, range.text);
  return static_cast<std::int64_t>(value);
}

void RecipeReader::field(const std::string& key, std::int64_t& out, Need need, const Range& range) {
  if (const Setting* s = take(key, need)) out = whole(*s, dotted(key), range);
}

void RecipeReader::field(const std::string& key, std::uint64_t& out, Need need, const Range& range) {
  if (const Setting* s = take(key, need)) out = static_cast<std::uint64_t>(whole(*s, dotted(key), range));
}

void RecipeReader::field(const std::string& key, int& out, Need need, const Range& range) {
  if (const Setting* s = take(key, need)) out = static_cast<int>(whole(*s, dotted(key), range));
}

void RecipeReader::field(const std::string& key, double& out, Need need, const Range& range) {
  if (const Setting* s = take(key, need)) out = number(*s, dotted(key), range);
}

void RecipeReader::field(const std::string& key, bool& out, Need need) {
  const Setting* s = take(key, need);
  if (s == nullptr) return;
  if (s->kind != Setting::Kind::scalar || s->quoted || (s->scalar != "true" && s->scalar != "false"))
    throw must_be(*s, dotted(key), "true or false");
  out = s->scalar == "true";
}

void RecipeReader::field(const std::string& key, std::string& out, Need need) {
  const Setting* s = take(key, need);
  if (s == nullptr) return;
  if (s->kind != Setting::Kind::scalar || s->scalar.empty()) throw must_be(*s, dotted(key), "text");
  out = s->scalar;
}

void RecipeReader::list(const std::string& key, std::vector<kernels::PartKind>& out, Need need) {
  const Setting* s = take(key, need);
  if (s == nullptr) return;
  out.clear();
  if (s->kind == Setting::Kind::scalar) out.push_back(one_of(*s, dotted(key), part_names()));
  for (const Setting& item : s->items) out.push_back(one_of(item, dotted(key), part_names()));
  if (out.empty()) throw must_be(*s, dotted(key), "a list of parts, at least one");
}

void RecipeReader::list(const std::string& key, std::vector<std::int64_t>& out, Need need) {
  const Setting* s = take(key, need);
  if (s == nullptr) return;
  out.clear();
  if (s->kind == Setting::Kind::scalar) out.push_back(whole(*s, dotted(key), ranges::positive));
  for (const Setting& item : s->items) out.push_back(whole(item, dotted(key), ranges::positive));
  if (s->kind == Setting::Kind::map || (out.empty() && need == Need::required))
    throw must_be(*s, dotted(key), "a whole number or a list of them");
}

const std::vector<Setting>* RecipeReader::list_of_maps(const std::string& key, Need need) {
  const Setting* s = take(key, need);
  if (s == nullptr) return nullptr;
  if (s->kind != Setting::Kind::list) throw must_be(*s, dotted(key), "a list of maps of keys and values");
  for (const Setting& item : s->items)
    if (item.kind != Setting::Kind::map) throw must_be(item, "an entry of " + dotted(key), "a map of keys and values");
  return &s->items;
}

void RecipeReader::reasons(const std::string& key, std::vector<std::pair<std::string, std::string>>& out) {
  const Setting* s = take(key, Need::optional);
  if (s == nullptr) return;
  if (s->kind != Setting::Kind::map) throw must_be(*s, key, "a map from keys of this recipe to reasons");
  for (const auto& [name, reason] : s->entries) {
    if (reason.kind != Setting::Kind::scalar)
      throw must_be(reason, key + " '" + name + "'", "a sentence that says why the value was chosen");
    const Setting* at = stack_.front().map;
    std::string rest = name;
    while (at != nullptr && !rest.empty()) {
      const std::size_t dot = rest.find('.');
      at = at->find(rest.substr(0, dot));
      rest = dot == std::string::npos ? "" : rest.substr(dot + 1);
    }
    if (at == nullptr)
      throw user_error("{}: unpublished names '{}', which this recipe does not set; name a key such as train.lr",
                       reason.where, name);
    out.emplace_back(name, reason.scalar);
  }
}

std::string RecipeReader::where(const Setting& root, const std::string& dotted_key) {
  const Setting* at = &root;
  std::string rest = dotted_key;
  while (!rest.empty()) {
    const std::size_t dot = rest.find('.');
    const Setting* next = at->find(rest.substr(0, dot));
    if (next == nullptr) break;
    at = next;
    rest = dot == std::string::npos ? "" : rest.substr(dot + 1);
  }
  return at->where;
}

void RecipeReader::refuse_choice(const Setting& s, const std::string& name, const std::vector<std::string>& names) {
  const std::string near = s.kind == Setting::Kind::scalar ? nearest(s.scalar, names) : "";
  throw user_error("{}: {} is {}, but must be {}{}", s.where, name, s.text(), fmt::join(names, " or "),
                   near.empty() ? "" : "; did you mean '" + near + "'?");
}

}  // namespace longstride
