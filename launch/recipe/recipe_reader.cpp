#include "launch/recipe/recipe_reader.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>
#include <string_view>

#include "framework/core/text/numbers.h"
#include "launch/recipe/recipe_aliases.h"

namespace longstride {
namespace {

std::optional<double> number_in(const Setting& s) {
  if (s.kind != Setting::Kind::scalar || s.quoted || s.scalar.empty()) return {};
  double value = 0;
  const char* begin = s.scalar.data() + (s.scalar[0] == '+' ? 1 : 0);
  const char* end = s.scalar.data() + s.scalar.size();
  const char* digits = begin + (*begin == '-' ? 1 : 0);
  if (end - digits > 1 && digits[0] == '0' && digits[1] >= '0' && digits[1] <= '9') return {};  // octal in older YAML
  const auto result = std::from_chars(begin, end, value);
  if (result.ec != std::errc{} || result.ptr != end || !std::isfinite(value)) return {};
  return value;
}

bool within(double value, const Range& r) {
  return (r.open_least ? value > r.least : value >= r.least) && (r.open_most ? value < r.most : value <= r.most);
}

std::string allowed_text(const std::optional<double>& value, const Range& r) {
  if (!value || *value <= r.most || r.open_most) return r.text;
  if (std::string_view(r.text).find(thousands(static_cast<std::int64_t>(r.most))) != std::string_view::npos)
    return r.text;
  return fmt::format("{}, at most {:.0f}", r.text, r.most);
}

// Nothing if the word is not one of the names.
std::optional<std::size_t> index_in(const std::vector<std::string>& names, const std::string& word) {
  const auto found = std::find(names.begin(), names.end(), word);
  if (found == names.end()) return {};
  return static_cast<std::size_t>(found - names.begin());
}

}  // namespace

std::string RecipeReader::dotted(const std::string& key) const {
  const std::string& section = stack_.back().name;
  return section.empty() ? key : section + "." + key;
}

void RecipeReader::must_be(const Setting& s, const std::string& name, const std::string& what) {
  mistakes_.add(name, fmt::format("{}: {} is {}, but must be {}", s.where, name, s.text(), what));
}

void RecipeReader::level(Setting& map, const std::string& name, const std::function<void()>& visit, bool of_list) {
  stack_.push_back({&map, name, {}, of_list});
  listing_ = true;
  visit();
  listing_ = false;
  if (!stack_.back().undecided) explain_unknown();
  stack_.back().undecided = false;
  visit();
  stack_.pop_back();
}

void RecipeReader::explain_unknown() {
  const Level& at = stack_.back();
  for (auto& [key, value] : at.map->entries) {
    if (std::find(at.known.begin(), at.known.end(), key) != at.known.end()) continue;
    if (const std::string now = renamed_key(dotted(key)); !now.empty()) {
      mistakes_.add("", fmt::format("{}: {} was renamed to {}", value.where, dotted(key), now));
      continue;
    }
    const std::string meant = meant_key(key, at.name, at.known, root_);
    mistakes_.add(
        "", fmt::format("{}: unknown key '{}'{}; {}", value.where, shown(key), at.name.empty() ? "" : " in " + at.name,
                        meant.empty() ? fmt::format("choose from {}", fmt::join(at.known, ", "))
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
  if (at.undecided) return nullptr;
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

void RecipeReader::number(const Setting& s, const std::string& name, const Range& range, std::int64_t& out) {
  double value = 0;
  if (!number(s, name, range, value)) return;
  if (value != std::floor(value)) return must_be(s, name, range.text);
  out = static_cast<std::int64_t>(value);
}

void RecipeReader::whole(const std::string& key, std::int64_t& value, Need need, const Range& range) {
  if (const Setting* s = take(key, need)) number(*s, dotted(key), range, value);
}

void RecipeReader::real(const std::string& key, double& value, Need need, const Range& range) {
  if (const Setting* s = take(key, need)) number(*s, dotted(key), range, value);
}

void RecipeReader::flag(const std::string& key, bool& value, Need need) {
  const Setting* s = take(key, need);
  if (s == nullptr) return;
  if (s->kind != Setting::Kind::scalar || s->quoted || (s->scalar != "true" && s->scalar != "false"))
    return must_be(*s, dotted(key), "true or false");
  value = s->scalar == "true";
}

void RecipeReader::text(const std::string& key, std::string& value, Need need) {
  const Setting* s = take(key, need);
  if (s == nullptr) return;
  const std::string& given = s->whole.empty() ? s->scalar : s->whole;
  if ((s->kind != Setting::Kind::scalar && s->whole.empty()) || (given.empty() && need == Need::required))
    return must_be(*s, dotted(key), "text");
  value = given;
}

// The list of keys may depend on a choice (model.kind), so the first visit makes it too. For a misspelt choice it takes
// the nearest, and the second visit reports the mistake.
void RecipeReader::option(const std::string& key, std::size_t& chosen, Need need, const std::vector<std::string>& names,
                          const OtherWords& words) {
  const Setting* s = take(key, need);
  if (listing_) s = stack_.back().map->find(key);
  auto index = s == nullptr ? std::nullopt : index_in(names, s->scalar);
  if (s != nullptr && !index) {
    if (!listing_) refuse_choice(*s, dotted(key), names, words);
    index = index_in(names, nearest(s->scalar, names));
  }
  if (index) chosen = *index;
  if (!index && key == "kind" && stack_.back().of_list) stack_.back().undecided = true;
}

void RecipeReader::options(const std::string& key, std::vector<std::size_t>& chosen, Need need,
                           const std::vector<std::string>& names, const OtherWords& words) {
  const Setting* s = take(key, need);
  if (s == nullptr) return;
  chosen.clear();
  const auto add = [&](const Setting& item) {
    if (const auto index = index_in(names, item.scalar))
      chosen.push_back(*index);
    else
      refuse_choice(item, dotted(key), names, words);
  };
  if (s->kind == Setting::Kind::scalar)
    add(*s);
  else if (s->items.empty())
    must_be(*s, dotted(key), fmt::format("a list of at least one of {}", fmt::join(names, ", ")));
  for (const Setting& item : s->items) add(item);
}

void RecipeReader::list(const std::string& key, std::vector<std::int64_t>& values, Need need) {
  const Setting* s = take(key, need);
  if (s == nullptr) return;
  values.clear();
  if (s->kind == Setting::Kind::scalar) number(*s, dotted(key), ranges::positive, values.emplace_back());
  for (const Setting& item : s->items) number(item, dotted(key), ranges::positive, values.emplace_back());
  if (s->kind == Setting::Kind::map || (values.empty() && need == Need::required))
    must_be(*s, dotted(key), "a whole number or a list of them");
}

void RecipeReader::maps(const std::string& key, std::size_t, Need need, const std::function<void(std::size_t)>& resize,
                        const std::function<void(SettingsVisitor&, std::size_t)>& visit) {
  Setting* s = take(key, need);
  if (s == nullptr) return;
  if (s->kind != Setting::Kind::list) return must_be(*s, dotted(key), "a list of maps of keys and values");
  for (const Setting& item : s->items)
    if (item.kind != Setting::Kind::map)
      return mistakes_.add(dotted(key), fmt::format("{}: an entry of {} is {}, but must be a map of keys and values",
                                                    item.where, dotted(key), item.text()));
  resize(s->items.size());
  for (std::size_t i = 0; i < s->items.size(); ++i) level(s->items[i], dotted(key), [&] { visit(*this, i); });
}

void RecipeReader::nested_maps(const std::string& key, const std::vector<std::size_t>&, Need need,
                               const std::function<void(const std::vector<std::size_t>&)>& resize,
                               const std::function<void(SettingsVisitor&, std::size_t e, std::size_t i)>& visit) {
  Setting* s = take(key, need);
  if (s == nullptr) return;
  if (s->kind != Setting::Kind::list || s->items.empty())
    return must_be(*s, dotted(key), "a list of maps of keys and values, or of lists of these");
  std::vector<std::size_t> sizes;
  for (const Setting& item : s->items) {
    const bool list = item.kind == Setting::Kind::list && !item.items.empty();
    const auto is_map = [](const Setting& x) { return x.kind == Setting::Kind::map; };
    if (!is_map(item) && !(list && std::all_of(item.items.begin(), item.items.end(), is_map)))
      return mistakes_.add(
          dotted(key), fmt::format("{}: an entry of {} is {}, but must be a map of keys and values, or a list of them",
                                   item.where, dotted(key), item.text()));
    sizes.push_back(list ? item.items.size() : 1);
  }
  resize(sizes);
  for (std::size_t e = 0; e < s->items.size(); ++e) {
    Setting& item = s->items[e];
    const std::string name = fmt::format("{}.{}", dotted(key), e);
    if (item.kind == Setting::Kind::map)
      level(
          item, name, [&] { visit(*this, e, 0); }, true);
    for (std::size_t i = 0; i < item.items.size(); ++i)
      level(
          item.items[i], item.items.size() > 1 ? fmt::format("{}.{}", name, i) : name, [&] { visit(*this, e, i); },
          true);
  }
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

// Called after misspelt keys have been given their right names.
void RecipeReader::check_reasons() {
  const Setting* reasons = root_.find("unpublished");
  if (reasons == nullptr) return;
  for (const auto& [name, reason] : reasons->entries)
    if (find_setting(root_, name) == nullptr && mistakes_.none_in({name.c_str()}))
      mistakes_.add("unpublished", fmt::format("{}: unpublished names '{}', which this recipe does not set; name a key "
                                               "such as train.lr",
                                               reason.where, shown(name)));
}

void RecipeReader::refuse_choice(const Setting& s, const std::string& name, const std::vector<std::string>& names,
                                 const OtherWords& words) {
  const std::string near = s.kind == Setting::Kind::scalar ? nearest(s.scalar, names) : "";
  std::string hint = near.empty() ? "" : "; did you mean '" + near + "'?";
  for (const auto& [word, meaning] : words)
    if (as_key(s.scalar) == word) hint = "; " + word + " is " + meaning;
  must_be(s, name, fmt::format("{}{}", fmt::join(names, " or "), hint));
}

}  // namespace longstride
