#include "launch/console/arguments.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <limits>
#include <type_traits>
#include <vector>

#include "launch/recipe/recipe_aliases.h"
#include "launch/recipe/settings_tree.h"

namespace longstride {
namespace {

std::vector<std::string> commands_of(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* command : app.get_subcommands({})) names.push_back(command->get_name());
  return names;
}

std::vector<std::string> options_of(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::Option* option : app.get_options())
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  return names;
}

std::string meant(const std::string& word, const std::vector<std::string>& candidates) {
  const std::string near = nearest(word, candidates);
  return near.empty() ? "" : " (did you mean '" + near + "'?)";
}

// CLI11's own messages may have several lines.
std::string one_line(std::string text) {
  std::replace(text.begin(), text.end(), '\n', ' ');
  while (!text.empty() && text.back() == ' ') text.pop_back();
  return text;
}

// `left`: the unknown option and what follows it. One with the name of a recipe's key is taken for that key.
std::string unknown_option(const CLI::App& at, const std::vector<std::string>& left) {
  const std::size_t equals = left.front().find('=');
  const std::string option = left.front().substr(0, equals);
  const std::vector<std::string> options = options_of(at);
  if (std::find(options.begin(), options.end(), option) != options.end())
    return fmt::format("'{}' belongs behind '{}'", option, at.get_name());
  const std::string key = option.starts_with("--") ? key_of_option(option.substr(2)) : "";
  if (!key.empty() && std::find(options.begin(), options.end(), "--set") != options.end()) {
    const bool next = left.size() > 1 && !left[1].starts_with("--");
    const std::string value = equals != std::string::npos ? left.front().substr(equals + 1) : next ? left[1] : "VALUE";
    return fmt::format("there is no option '{}'; it is a key of the recipe: --set {}={}", option, key, value);
  }
  return fmt::format("there is no option '{}'{}", option, meant(option, options));
}

std::string cause(const CLI::App& app, const CLI::App& at, const CLI::ParseError& error) {
  const std::vector<std::string> commands = commands_of(at), left = app.remaining(true);
  const bool required = dynamic_cast<const CLI::RequiredError*>(&error) != nullptr;
  const bool extra = dynamic_cast<const CLI::ExtrasError*>(&error) != nullptr;
  if ((required || extra) && !left.empty()) {  // the required word may be there, but misspelt
    const std::string word = left.front().substr(0, left.front().find('='));
    if (word.starts_with("-")) return unknown_option(at, left);
    if (!commands.empty()) return fmt::format("there is no command '{}'{}", word, meant(word, commands));
    if (extra) return fmt::format("'{}' is one argument too many", left.front());
  }
  if (required && !commands.empty())
    return fmt::format("{} needs a command: {}", at.get_name(), fmt::join(commands, " or "));
  return one_line(error.what());
}

CLI::Validator bounded(const std::string& what, bool (*allowed)(double)) {
  return CLI::Validator(
      [=](std::string& text) {
        char* end = nullptr;
        const double value = std::strtod(text.c_str(), &end);
        return end != text.c_str() && *end == '\0' && allowed(value) ? "" : text + " is not a number " + what;
      },
      what);
}

template <class T>
bool parses(const std::string& text, T& out) {
  const char *begin = text.data(), *end = begin + text.size();
  const auto result = std::from_chars(begin + (text.starts_with("+") ? 1 : 0), end, out);
  return result.ec == std::errc{} && result.ptr == end;
}

// Writes 1e6 as 1000000, which CLI11 reads.
template <class T>
std::string exact_whole(std::string& text) {
  T whole = 0;
  if (parses(text, whole)) return "";
  double value = 0;
  if (!parses(text, value) || value != std::floor(value)) return text + " is not a whole number";
  constexpr double exact = 9007199254740992.0;  // 2^53: beyond it a double skips whole numbers
  if (value < 0 && std::is_unsigned_v<T>) return text + " is below 0";
  if (std::abs(value) > exact)
    return fmt::format("{} is out of range; give a whole number {} {}", text, value > 0 ? "up to" : "from",
                       value > 0 ? std::numeric_limits<T>::max() : std::numeric_limits<T>::min());
  text = fmt::format("{:.0f}", value);
  return "";
}

std::string finite(std::string& text) {
  double value = 0;
  return parses(text, value) && !std::isfinite(value) ? text + " is not a finite number" : "";
}

std::string not_empty(std::string& text, bool positional) {
  if (!text.empty()) return "";
  return positional ? "'' names no file or folder" : "'' is not a value; give one, or leave the option out";
}

// CLI11 takes [a] for a list, whose brackets it removes, unless the number of values has a limit.
void take_brackets_as_they_are(CLI::Option& option) {
  if (!option.get_allow_extra_args() || option.get_positional()) return;
  constexpr int no_limit = 1 << 20;
  const std::string type = option.get_type_name();  // with the names of its checks, which help adds again
  option.expected(1, no_limit)->allow_extra_args(false)->type_name(type.substr(0, type.find(':')) + " ...");
}

}  // namespace

CLI::Validator above_zero() {
  return bounded("above 0", [](double value) { return value > 0; });
}
CLI::Validator not_below_zero() {
  return bounded("at or above 0", [](double value) { return value >= 0; });
}

void refuse_impossible_values(CLI::App& app) {
  for (CLI::Option* option : app.get_options()) {
    if (option->get_items_expected_max() == 0) continue;  // a flag
    take_brackets_as_they_are(*option);
    const bool positional = option->get_positional();
    const std::string type =
        option->get_type_name();  // CLI11's name of the variable's type; names of its checks follow
    if (type.starts_with("INT")) option->transform(CLI::Validator(exact_whole<std::int64_t>, ""));
    if (type.starts_with("UINT")) option->transform(CLI::Validator(exact_whole<std::uint64_t>, ""));
    if (type.starts_with("FLOAT")) option->transform(CLI::Validator(finite, ""));
    option->transform(CLI::Validator([=](std::string& text) { return not_empty(text, positional); }, ""));
  }
  for (CLI::App* command : app.get_subcommands({})) refuse_impossible_values(*command);
}

std::string command_of(const CLI::App& app) {
  std::string command;
  for (const CLI::App* at = &app; !at->get_subcommands().empty();) {
    at = at->get_subcommands().front();
    command += (command.empty() ? "" : " ") + at->get_name();
  }
  return command.empty() ? app.get_name() : command;
}

std::map<std::string, std::string> given_options(const CLI::App& command, const std::set<std::string>& except) {
  std::map<std::string, std::string> given;
  for (const CLI::Option* option : command.get_options())
    if (option->count() > 0 && !except.contains(option->get_name()))
      given[option->get_name()] = fmt::format("{}", fmt::join(option->results(), ", "));
  return given;
}

std::string explain(const CLI::App& app, const CLI::ParseError& error) {
  const CLI::App* at = &app;
  while (!at->get_subcommands().empty()) at = at->get_subcommands().front();
  const std::string command = at == &app ? "" : " " + command_of(app);
  return fmt::format("{}; see {}{} --help", cause(app, *at, error), app.get_name(), command);
}

}  // namespace longstride
