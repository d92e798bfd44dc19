#include "launch/sweep/sweep_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "framework/core/errors.h"
#include "framework/core/text/numbers.h"
#include "framework/core/text/printable.h"

namespace longstride {
namespace {

constexpr const char *example = "as in --sweep train.lr=1e-3,4e-3", *seed_key = "train.seed";

std::vector<std::string> divided(const std::string& text) {
  std::vector<std::string> values(1);
  int depth = 0;
  char quote = 0;
  for (const char c : text) {
    if (quote != 0)
      quote = c == quote ? '\0' : quote;
    else if (c == '"' || c == '\'')
      quote = c;
    else if (c == '[' || c == '{')
      ++depth;
    else if (c == ']' || c == '}')
      --depth;
    else if (c == ',' && depth == 0) {
      values.emplace_back();
      continue;
    }
    values.back() += c;
  }
  return values;
}

SweepAxis axis_of(const std::string& sweep) {
  const std::size_t equals = sweep.find('=');
  const std::string where = "--sweep " + printable(sweep);
  if (equals == std::string::npos || equals == 0) throw user_error("{}: must be KEY=VALUE,VALUE, {}", where, example);
  SweepAxis axis{sweep.substr(0, equals), divided(sweep.substr(equals + 1))};
  if (axis.values.size() == 1)
    throw user_error("{}: has one value, which --set sets; give several, separated by commas, {}", where, example);
  for (std::size_t i = 0; i < axis.values.size(); ++i) {
    if (axis.values[i].empty()) throw user_error("{}: has an empty value; give one, {}", where, example);
    if (std::count(axis.values.begin(), axis.values.end(), axis.values[i]) > 1)
      throw user_error("{}: has {} twice; give every value once", where, printable(axis.values[i]));
  }
  return axis;
}

void check_keys(const std::vector<SweepAxis>& axes, const std::vector<std::string>& overrides, std::int64_t seeds) {
  std::set<std::string> keys;
  for (const SweepAxis& axis : axes) {
    if (!keys.insert(axis.key).second)
      throw user_error("--sweep {} is given twice; give all its values in one", printable(axis.key));
    if (axis.key == seed_key && seeds > 1)
      throw user_error("--sweep {} and --seeds are given; leave one of them out", seed_key);
  }
  if (seeds > 1) keys.insert(seed_key);
  for (const std::string& override_of : overrides)
    if (const std::string key = override_of.substr(0, override_of.find('=')); keys.contains(key))
      throw user_error("--set {} sets what the sweep varies; leave it out", printable(override_of));
}

std::vector<std::vector<std::string>> product(const std::vector<SweepAxis>& axes, std::int64_t seeds) {
  std::vector<std::vector<std::string>> all = {{}};
  for (const SweepAxis& axis : axes) {
    std::vector<std::vector<std::string>> longer;
    if (std::ssize(all) * std::ssize(axis.values) * seeds > most_runs_of_sweep)
      throw user_error("the sweep has {} or more runs, but may have at most {}; leave out values or seeds",
                       thousands(std::ssize(all) * std::ssize(axis.values) * seeds), thousands(most_runs_of_sweep));
    for (const auto& values : all)
      for (const std::string& value : axis.values) {
        longer.push_back(values);
        longer.back().push_back(value);
      }
    all = std::move(longer);
  }
  return all;
}

// The last word of a key, or the whole where two end alike.
std::string short_key(const std::vector<SweepAxis>& axes, const std::string& key) {
  const auto last = [](const std::string& dotted) { return dotted.substr(dotted.rfind('.') + 1); };
  const auto alike =
      std::count_if(axes.begin(), axes.end(), [&](const SweepAxis& axis) { return last(axis.key) == last(key); });
  return alike > 1 ? key : last(key);
}

// Letters that every file system and shell takes.
std::string folder_name(const std::string& text) {
  constexpr std::size_t longest = 180;
  std::string out;
  for (const char c : text.substr(0, longest)) {
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                       std::string("._+-=,").find(c) != std::string::npos;
    out += plain ? c : '_';
  }
  return out;
}

// A recipe of the sweep, and messages that name the option that was given.
Recipe read_swept(const std::string& recipe, const std::vector<std::string>& overrides, std::size_t users) {
  try {
    return read_recipe(recipe, overrides);
  } catch (const UserError& error) {
    std::string message = error.what();
    for (std::size_t i = users; i < overrides.size(); ++i) {
      const std::string set = "--set " + printable(overrides[i]);
      if (const std::size_t at = message.find(set); at != std::string::npos) message.replace(at, 5, "--sweep");
    }
    throw UserError(message);
  }
}

}  // namespace

SweepPlan plan_sweep(const std::string& recipe, const std::vector<std::string>& overrides,
                     const std::vector<std::string>& sweeps, std::int64_t seeds) {
  SweepPlan plan;
  plan.seeds = seeds;
  for (const std::string& sweep : sweeps) plan.axes.push_back(axis_of(sweep));
  check_keys(plan.axes, overrides, seeds);
  plan.combinations = product(plan.axes, seeds);
  const std::uint64_t first_seed = read_recipe(recipe, overrides).train.seed;
  std::set<std::string> names;
  for (std::size_t c = 0; c < plan.combinations.size(); ++c)
    for (std::int64_t s = 0; s < seeds; ++s) {
      SweepRun run;
      run.combination = c;
      run.overrides = overrides;
      std::string name;
      const auto vary = [&](const std::string& key, const std::string& value, const std::string& shown) {
        run.overrides.push_back(key + "=" + value);
        name += (name.empty() ? "" : ",") + shown + "=" + value;
      };
      for (std::size_t a = 0; a < plan.axes.size(); ++a)
        vary(plan.axes[a].key, plan.combinations[c][a], short_key(plan.axes, plan.axes[a].key));
      if (seeds > 1) vary(seed_key, fmt::format("{}", first_seed + static_cast<std::uint64_t>(s)), "seed");
      run.name = folder_name(name);
      if (!names.insert(run.name).second) names.insert(run.name = fmt::format("{}-{}", run.name, plan.runs.size()));
      run.recipe = read_swept(recipe, run.overrides, overrides.size());
      plan.runs.push_back(std::move(run));
    }
  return plan;
}

}  // namespace longstride
