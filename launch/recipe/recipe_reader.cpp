#include "launch/recipe/recipe_reader.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>

#include "launch/recipe/recipe_aliases.h"

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

}  // namespace

std::string RecipeReader::dotted(const std::string& key) const {
  const std::string& section = stack_.back().name;
  return section.empty() ? key : section + "." + key;
}

void RecipeReader::must_be(const Setting& s, const std::string& name, const std::string& what) {
  mistakes_.add(name, fmt::format("{}: {} is {}, but must be {}", s.where, name, s.text(), what));
}

void RecipeReader::level(Setting& map, const std::string& name, const std::function<void()>& visit) {
  stack_.push_back({&map, name, {}});
  listing_ = true;
  visit();
  listing_ = false;
  explain_unknown();
  visit();
  stack_.pop_back();
}

void RecipeReader::explain_unknown() {
  const Level& at = stack_.back();
  for (auto& [key, value] : at.map->entries) {
    if (std::find(at.known.begin(), at.known.end(), key) != at.known.end()) continue;
    const std::string meant = meant_key(key, at.name, at.known);
    mistakes_.add(
        "", fmt::format("{}: unknown key '{}'{}; {}", value.where, shown(key), at.name.empty() ? "" : " in " + at.name,
                        meant.empty() ? fmt::format("it may have {}", fmt::join(at.known, ", "))
                                      : fmt::format("did you mean '{}'?", meant)));
    const bool here = std::find(at.known.begin(), at.known.end(), meant) != at.known.end();
    if (here && at.map->find(meant) == nullptr) key = meant;
  }
}

Setting* RecipeReader::take(const std::string& key, Need need) {
  Level& at = stack_.back();
  if (listing_) {
    at.known.push_back(key);
    return nullptr;
  }
  Setting* s = at.map->find(key);
  if (s == nullptr && need == Need::required)
    mistakes_.add(dotted(key), fmt::format("{}: {} is missing; add it (docs/guide/recipes.md lists every key)",
                                           at.map->where, dotted(key)));
  if (s == nullptr || s->kind != Setting::Kind::null) return s;
  mistakes_.add(dotted(key), fmt::format("{}: {} has no value; give it one or remove the key", s->where, dotted(key)));
  return nullptr;
}

void RecipeReader::section(const std::string& key, Need need, bool, const std::function<void()>& visit) {
  Setting* s = take(key, need);
  if (s == nullptr) return;
  if (s->kind != Setting::Kind::map) return must_be(*s, dotted(key), "a map of keys and values");
  level(*s, dotted(key), visit);
}

bool RecipeReader::number(const Setting& s, const std::string& name, const Range& range, double& out) {
  const std::optional<double> value = number_in(s);
  if (value && within(*value, range)) {
    out = *value;
    return true;
  }
  must_be(s, name, allowed_text(value, range));
  return false;
}

void RecipeReader::field(const std::string& key, std::int64_t& out, Need need, const Range& range) {
  if (const Setting* s = take(key, need)) whole(*s, dotted(key), range, out);
}

void RecipeReader::field(const std::string& key, std::uint64_t& out, Need need, const Range& range) {
  if (const Setting* s = take(key, need)) whole(*s, dotted(key), range, out);
}

void RecipeReader::field(const std::string& key, int& out, Need need, const Range& range) {
  if (const Setting* s = take(key, need)) whole(*s, dotted(key), range, out);
}

void RecipeReader::field(const std::string& key, double& out, Need need, const Range& range) {
  if (const Setting* s = take(key, need)) number(*s, dotted(key), range, out);
}

void RecipeReader::field(const std::string& key, bool& out, Need need) {
  const Setting* s = take(key, need);
  if (s == nullptr) return;
  if (s->kind != Setting::Kind::scalar || s->quoted || (s->scalar != "true" && s->scalar != "false"))
    return must_be(*s, dotted(key), "true or false");
  out = s->scalar == "true";
}

void RecipeReader::field(const std::string& key, std::string& out, Need need) {
  const Setting* s = take(key, need);
  if (s == nullptr) return;
  if (s->kind != Setting::Kind::scalar || (s->scalar.empty() && need == Need::required))
    return must_be(*s, dotted(key), "text");
  out = s->scalar;
}

void RecipeReader::list(const std::string& key, std::vector<kernels::PartKind>& out, Need need) {
  const Setting* s = take(key, need);
  if (s == nullptr) return;
  out.clear();
  if (s->kind == Setting::Kind::scalar) one_of(*s, dotted(key), part_names(), out.emplace_back());
  for (const Setting& item : s->items) one_of(item, dotted(key), part_names(), out.emplace_back());
  if (out.empty()) must_be(*s, dotted(key), "a list of parts, at least one");
}

void RecipeReader::list(const std::string& key, std::vector<std::int64_t>& out, Need need) {
  const Setting* s = take(key, need);
  if (s == nullptr) return;
  out.clear();
  if (s->kind == Setting::Kind::scalar) whole(*s, dotted(key), ranges::positive, out.emplace_back());
  for (const Setting& item : s->items) whole(item, dotted(key), ranges::positive, out.emplace_back());
  if (s->kind == Setting::Kind::map || (out.empty() && need == Need::required))
    must_be(*s, dotted(key), "a whole number or a list of them");
}

Setting* RecipeReader::list_of_maps(const std::string& key, Need need) {
  Setting* s = take(key, need);
  if (s == nullptr) return nullptr;
  if (s->kind != Setting::Kind::list) {
    must_be(*s, dotted(key), "a list of maps of keys and values");
    return nullptr;
  }
  for (const Setting& item : s->items) {
    if (item.kind == Setting::Kind::map) continue;
    mistakes_.add(dotted(key), fmt::format("{}: an entry of {} is {}, but must be a map of keys and values", item.where,
                                           dotted(key), item.text()));
    return nullptr;
  }
  return s;
}

void RecipeReader::reasons(const std::string& key, std::vector<std::pair<std::string, std::string>>& out) {
  const Setting* s = take(key, Need::optional);
  if (s == nullptr) return;
  if (s->kind != Setting::Kind::map) return must_be(*s, key, "a map from keys of this recipe to reasons");
  for (const auto& [name, reason] : s->entries) {
    if (reason.kind != Setting::Kind::scalar)
      must_be(reason, key + " '" + shown(name) + "'", "a sentence that says why the value was chosen");
    else
      out.emplace_back(name, reason.scalar);
  }
}

// When all keys have their right names.
void RecipeReader::check_reasons() {
  const Setting* reasons = root_.find("unpublished");
  if (reasons == nullptr) return;
  for (const auto& [name, reason] : reasons->entries)
    if (find_setting(root_, name) == nullptr && mistakes_.none_in({name.c_str()}))
      mistakes_.add("unpublished", fmt::format("{}: unpublished names '{}', which this recipe does not set; name a key "
                                               "such as train.lr",
                                               reason.where, shown(name)));
}

void RecipeReader::refuse_choice(const Setting& s, const std::string& name, const std::vector<std::string>& names) {
  const std::string near = s.kind == Setting::Kind::scalar ? nearest(s.scalar, names) : "";
  const std::string parts = name == "model.attention.parts" ? meant_parts(s.scalar) : "";
  must_be(s, name,
          fmt::format("{}{}", fmt::join(names, " or "),
                      !parts.empty() ? "; " + parts
                      : near.empty() ? ""
                                     : "; did you mean '" + near + "'?"));
}

}  // namespace longstride
