#include "datasets/prepare/split_rule.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <sstream>
#include <vector>

#include "datasets/dataset.h"
#include "framework/core/errors.h"
#include "framework/core/text/numbers.h"

namespace longstride {
namespace {

constexpr std::int64_t enwik8_bytes = 100'000'000;

template <class T>
bool parse_all(std::string_view text, T& out) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), out);
  return error == std::errc() && end == text.data() + text.size();
}

// As recipes write whole numbers, such as 1e6.
bool parse_count(std::string_view text, std::int64_t& out) {
  double real = 0;
  if (parse_all(text, out)) return true;
  if (!parse_all(text, real) || text.find('e') == text.npos || !(std::abs(real) < 0x1p53) || real != std::trunc(real))
    return false;
  out = static_cast<std::int64_t>(real);
  return true;
}

std::vector<std::string> parts_of(const std::string& text) {
  std::vector<std::string> parts;
  std::istringstream in(text);
  for (std::string part; std::getline(in, part, ',');) {
    part.erase(0, part.find_first_not_of(' '));
    part.erase(part.find_last_not_of(' ') + 1);
    parts.push_back(part);
  }
  return parts;
}

}  // namespace

SplitRule SplitRule::parse(const std::string& text) {
  SplitRule rule;
  rule.text_ = text;
  if (text == "enwik8") {
    rule.counted_ = true;
    rule.counts_ = {90'000'000, 5'000'000, 5'000'000};
    return rule;
  }
  const std::vector<std::string> parts = parts_of(text);
  const auto wrong = [&](const std::string& why) {
    return user_error(
        "--split is '{}', but {}; give counts such as 90000000,5000000,5000000 or fractions such as "
        "0.9,0.05,0.05",
        text, why);
  };
  if (parts.size() < 2 || parts.size() > 3 || text.back() == ',') throw wrong("two or three numbers are needed");
  rule.counted_ = text.find('.') == std::string::npos;
  double sum = 0;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const bool read = rule.counted_ ? parse_count(parts[i], rule.counts_[i]) : parse_all(parts[i], rule.fractions_[i]);
    if (!read || std::isnan(rule.fractions_[i])) throw wrong(fmt::format("'{}' is not a number", parts[i]));
    if (rule.counts_[i] < 0 || rule.fractions_[i] < 0) throw wrong(fmt::format("{} is negative", parts[i]));
    if (rule.counts_[i] > std::int64_t{1} << 60) throw wrong(fmt::format("{} is too large", parts[i]));
    sum += rule.fractions_[i];
  }
  if (!rule.counted_ && !(std::abs(sum - 1) < 1e-6))
    throw wrong(fmt::format("the fractions add up to {:g}, not 1", sum));
  return rule;
}

SplitRule SplitRule::of(const PrepareFilesConfig& config, const char* fallback) {
  if (config.splits_given() && !config.split.empty())
    throw user_error(
        "--split divides what --input holds, so it cannot be used with --valid-input or --test-input; "
        "leave one of them out");
  return parse(config.split.empty() ? fallback : config.split);
}

SplitCounts SplitRule::divide(std::int64_t total, const std::string& where, const char* units) const {
  if (text_ == "enwik8" && total != enwik8_bytes)
    throw user_error(
        "{}: has {} {}, but --split enwik8 divides exactly {}; for a part of enwik8 use fractions such as "
        "--split 0.9,0.05,0.05",
        where, thousands(total), units, thousands(enwik8_bytes));
  if (counted_) {
    const std::int64_t sum = counts_[0] + counts_[1] + counts_[2];
    if (sum != total)
      throw user_error("{}: has {} {}, but --split {} adds up to {}; make the counts add up or use fractions{}", where,
                       thousands(total), units, text_, thousands(sum), sum == 1 ? ", which have a point: 1.0,0,0" : "");
    return counts_;
  }
  const auto whole = static_cast<double>(total);
  // Fractions may add up to a little more than 1.
  const auto up_to = [&](double fraction) { return std::min<std::int64_t>(std::llround(fraction * whole), total); };
  const std::int64_t first = up_to(fractions_[0]);
  const std::int64_t second = fractions_[2] > 0 ? up_to(fractions_[0] + fractions_[1]) : total;
  return {first, second - first, total - second};
}

void SplitRule::check_shares(const SplitCounts& counts, const std::string& where, const char* units) const {
  for (std::size_t s = 0; s < 3; ++s)
    if (fractions_[s] > 0 && counts[s] == 0)
      throw user_error(
          "{}: has {} {}, of which --split {} leaves none for '{}'; give it a larger share, or 0 to leave it empty",
          where, thousands(counts[0] + counts[1] + counts[2]), units, text_, split_names[s]);
}

}  // namespace longstride
